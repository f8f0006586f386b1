"""Coded matrices for pieces of prompts: unpacked and multiplied as bf16.

The kernel for 4 bits unpacks its codes for every few rows, and multiplies in fp32. Milliseconds on
a Zen 5 core, one thread, for a matrix of (1536, 576) and 1, 64, 128 and 256 rows: 0.03, 0.7, 1.4
and 2.7. Unpacking takes 0.4 once, and the product of bf16 numbers 0.3, 0.5 and 1.0.

A row does not get the same bits in both ways. So it depends on nothing but the size of its own
piece which one is taken: pieces are cut the same whoever computes and however often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.lean.matrices import (
    CodedMatrix,
    Matrix,
    Stack,
    packed_half,
)

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.engine import Rows

LEAST_ROWS = 96
"""From so many rows on unpacking pays."""
NUMBERS = 2**20
"""That are unpacked at a time: they take 2 MiB, and hardly leave the cache."""


def is_piece(rows: Rows) -> bool:
    """Whether they are so large a piece of a prompt that matrices are unpacked for it."""
    return not rows.alone and rows.inputs.shape[0] >= LEAST_ROWS


def for_pieces(matrix: Matrix) -> Matrix:
    """The same matrix, as it is to be multiplied with the rows of a large piece."""
    if isinstance(matrix, Stack):
        return Stack([for_pieces(part) for part in matrix.parts])
    if isinstance(matrix, CodedMatrix):
        half = packed_half()
        if half is not None and matrix.held_rows % (2 * half) == 0:
            return UnpackedMatrix(matrix, half)
    return matrix


class UnpackedMatrix(Matrix):
    """Holds nothing of its own: a part of `coded` is unpacked, used and forgotten."""

    def __init__(self, coded: CodedMatrix, half: int) -> None:
        """`half` as `packed_half` gives it."""
        super().__init__(coded.rows, coded.columns, coded.nbytes)
        self._coded = coded
        self._half = half
        size = 2 * half
        count = -(-coded.rows // size)
        step = max(1, NUMBERS // (coded.columns * size))
        self._parts = [slice(at, min(count, at + step)) for at in range(0, count, step)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        coded = self._coded
        found = [x @ coded.numbers(part, self._half) for part in self._parts]
        product = found[0] if len(found) == 1 else torch.cat(found, 1)
        if product.shape[1] != self.rows:
            product = product[:, : self.rows].contiguous()
        return product if coded.bias is None else product.add_(coded.bias)
