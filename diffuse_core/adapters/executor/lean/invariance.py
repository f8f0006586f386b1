"""A row's numbers must not depend on whose rows go with it: checked, not assumed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.lean.matrices import Stack

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from diffuse_core.adapters.executor.lean.matrices import Matrix

log = logging.getLogger(__name__)

UNPROVEN = 16
"""What is used, and said in the log, where fewer rows are not enough."""
_ROWS = (2, 3, 4, 5, 8, 17, 32, 33)


def proven_alone(matrices: Iterable[Matrix], dtype: torch.dtype, device: str = "cpu") -> int:
    """With how few rows in a pass a row's product is bit for bit what it is among many.

    Kernels differ by machine, type and shape: one of each kind and shape is tried with random
    rows. UNPROVEN is given where no smaller number was enough.
    """
    needed = 1
    seen: set[Hashable] = set()
    for matrix in matrices:
        mark = _mark(matrix)
        if mark not in seen:
            seen.add(mark)
            needed = max(needed, _alone(matrix, dtype, device))
    return needed


def _mark(matrix: Matrix) -> Hashable:
    parts = matrix.parts if isinstance(matrix, Stack) else ()
    return type(matrix), matrix.rows, matrix.columns, tuple(_mark(part) for part in parts)


def _alone(matrix: Matrix, dtype: torch.dtype, device: str) -> int:
    generator = torch.Generator().manual_seed(matrix.rows * 31 + matrix.columns)
    x = torch.randn((max(_ROWS), matrix.columns), generator=generator).to(device, dtype)
    wanted = matrix.alone
    while wanted < UNPROVEN and not _same(matrix, x, wanted):
        wanted *= 2
    if wanted >= UNPROVEN:
        log.warning(
            "the last bits of a row may depend on the rows that are computed with it, for a "
            "matrix of %d rows and %d columns",
            matrix.rows,
            matrix.columns,
        )
    return wanted


def _same(matrix: Matrix, x: torch.Tensor, least: int) -> bool:
    full = matrix(x)
    for rows in _ROWS:
        count = max(rows, least)
        if not torch.equal(matrix(x[:count].contiguous())[:rows], full[:rows]):
            return False
    lone = torch.cat([x[7:8], x.new_zeros(least - 1, x.shape[1])])
    return torch.equal(matrix(lone)[:1], full[7:8])
