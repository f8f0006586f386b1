"""Matrices for pieces of prompts: brought into the type that a CPU multiplies well, then used.

The kernel for 4 bits unpacks its codes for every few rows, and multiplies in fp32. Milliseconds on
a Zen 5 core, one thread, for a matrix of (1536, 576) and 1, 64, 128 and 256 rows: 0.03, 0.7, 1.4
and 2.7. Unpacking takes 0.4 once, and the product of bf16 numbers 0.3, 0.5 and 1.0.

Where bf16 is slow (`bf16`) codes are unpacked to fp32, and matrices in bf16 widened. On a Zen 3
core the kernel takes 1.8, 4.3, 9.3 and 18 ms for 16, 64, 128 and 256 rows; unpacking 1.0,
and the product in fp32 0.5, 1.6, 3.0 and 6.1.

A row does not get the same bits in both ways. So it depends on nothing but the size of its own
piece which one is taken: pieces are cut the same whoever computes and however often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean import bf16
from diffuse_core.adapters.executor.lean.matrices import (
    CodedMatrix,
    Matrix,
    PlainMatrix,
    Stack,
    packed_half,
)

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.engine import Rows

LEAST_ROWS = 96
"""From so many rows on unpacking pays."""
NUMBERS = 2**20
"""That are unpacked at a time: they take 2 MiB (4 in fp32), and hardly leave the cache."""


def least_rows(dtype: torch.dtype, device: str) -> int:
    """From how many rows on a piece of a prompt is so large that matrices are unpacked for it."""
    return bf16.LEAST_ROWS if bf16.is_slow(dtype, device) else LEAST_ROWS


def is_piece(rows: Rows, least: int) -> bool:
    """Whether they are so large a piece, of at least `least` rows."""
    return not rows.alone and rows.inputs.shape[0] >= least


def for_pieces(matrix: Matrix) -> Matrix:
    """The same matrix, as it is to be multiplied with the rows of a large piece."""
    if isinstance(matrix, Stack):
        return Stack([for_pieces(part) for part in matrix.parts])
    if isinstance(matrix, CodedMatrix):
        half = packed_half()
        if half is not None and matrix.held_rows % (2 * half) == 0:
            return UnpackedMatrix(matrix, half)
    if isinstance(matrix, PlainMatrix) and matrix.slow:
        return WidenedMatrix(matrix)
    return matrix


class UnpackedMatrix(Matrix):
    """Holds nothing of its own: a part of `coded` is unpacked, used and forgotten."""

    def __init__(self, coded: CodedMatrix, half: int) -> None:
        """`half` as `packed_half` gives it."""
        super().__init__(coded.rows, coded.columns, coded.nbytes)
        self._coded = coded
        self._half = half
        self._type = torch.float32 if bf16.is_slow(torch.bfloat16, "cpu") else torch.bfloat16
        size = 2 * half
        count = -(-coded.rows // size)
        step = max(1, NUMBERS // (coded.columns * size))
        self._parts = [slice(at, min(count, at + step)) for at in range(0, count, step)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        coded = self._coded
        given = x.to(self._type)
        found = [
            (given @ coded.numbers(part, self._half, self._type)).to(x.dtype)
            for part in self._parts
        ]
        product = found[0] if len(found) == 1 else torch.cat(found, 1)
        if product.shape[1] != self.rows:
            product = product[:, : self.rows].contiguous()
        return product if coded.bias is None else product.add_(coded.bias)


class WidenedMatrix(Matrix):
    """Holds nothing of its own: a part of a bf16 matrix becomes fp32, is used and forgotten."""

    def __init__(self, plain: PlainMatrix) -> None:
        super().__init__(plain.rows, plain.columns, plain.nbytes)
        self._plain = plain
        step = max(1, NUMBERS // plain.columns)
        self._parts = [slice(at, at + step) for at in range(0, plain.rows, step)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        weight, bias = self._plain.weight, self._plain.bias
        given = x.to(torch.float32)
        product = x.new_empty((x.shape[0], self.rows))
        for part in self._parts:
            own = None if bias is None else bias[part].to(torch.float32)
            product[:, part] = functional.linear(given, weight[part].to(torch.float32), own)
        return product
