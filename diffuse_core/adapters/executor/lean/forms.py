"""From a source's tensors to the matrices a contract holds, a few MiB at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.lean.matrices import (
    Int4Matrix,
    Int8Matrix,
    Matrix,
    PackedMatrix,
    PlainMatrix,
    can_pack,
    stacked,
)
from diffuse_core.adapters.executor.tensors import DTYPES, view_stored
from diffuse_core.domain.shapes import GROUP, HIDDEN_TYPE, matrix_bits
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.ports import WeightSource

BLOCK_BYTES = 8 * 2**20
"""Of a matrix laid out anew at a time: what loading takes beyond the matrix itself."""
_BLOCK_ROWS = 64
"""Rows that the 4-bit kernel's layout keeps together."""
_CODE_LEVELS = 15
_INT8_MAX = 127


@dataclass(frozen=True)
class Piece:
    """A tensor, or a matrix's part of it. `interleave` is a head's width, or 0.

    With it, the rows of each head are put into the order in which the two numbers that a rotary
    position turns together are neighbours.
    """

    name: str
    interleave: int = 0


class Forms:
    """Makes what one contract holds on one device."""

    def __init__(self, source: WeightSource, contract: Contract, device: str) -> None:
        self._source = source
        self._contract = contract
        self._device = device
        self.dtype = DTYPES[HIDDEN_TYPE[contract]]
        self._pack = can_pack(self.dtype, device)

    def vector(self, piece: Piece) -> torch.Tensor:
        """A norm or a bias, in the type of the hidden states."""
        blocks = [view_stored(raw).to(self.dtype) for raw in self._source.pieces(piece.name)]
        return _interleaved(torch.cat(blocks), piece.interleave).to(self._device)

    def matrix(self, pieces: Sequence[Piece], biases: Sequence[Piece] = ()) -> Matrix:
        """The named tensors below each other, as one matrix."""
        bits = [self._bits(piece.name) for piece in pieces]
        bias = torch.cat([self.vector(b) for b in biases]) if biases else None
        parts: list[Matrix] = []
        at = first = 0
        while first < len(pieces):
            last = first
            while last < len(pieces) and bits[last] == bits[first]:
                last += 1
            run = pieces[first:last]
            rows = sum(self._shape(piece.name)[0] for piece in run)
            own = None if bias is None else bias[at : at + rows].clone()
            parts += self._same(run, bits[first], rows, own)
            at += rows
            first = last
        return stacked(parts)

    def table(self, name: str) -> torch.Tensor:
        """An embedding in the type of the hidden states."""
        table = torch.empty(self._shape(name), dtype=self.dtype, device=self._device)
        at = 0
        for block in self._rows(Piece(name)):
            table[at : at + block.shape[0]].copy_(block)
            at += block.shape[0]
        self._complete(name, at, table.shape[0])
        return table

    def coded(self, name: str) -> Int8Matrix:
        """An embedding or a head in 8 bits."""
        rows, columns = self._shape(name)
        return self._int8([Piece(name)], rows, columns, None)

    def _bits(self, name: str) -> int:
        return matrix_bits(self._contract, self._source.bits_of(name), self._shape(name)[1])

    def _shape(self, name: str) -> tuple[int, int]:
        shape = self._source.shape_of(name)
        if shape is None or len(shape) != 2:
            raise ModelUnusable(f"tensor {name} has shape {shape}; a matrix was expected")
        return shape[0], shape[1]

    def _same(
        self, pieces: Sequence[Piece], bits: int, rows: int, bias: torch.Tensor | None
    ) -> list[Matrix]:
        columns = self._shape(pieces[0].name)[1]
        if bits == 4:
            return [self._int4(pieces, rows, columns, bias)]
        if bits == 8:
            return [self._int8(pieces, rows, columns, bias)]
        return self._dense(pieces, rows, columns, bias)

    def _dense(
        self, pieces: Sequence[Piece], rows: int, columns: int, bias: torch.Tensor | None
    ) -> list[Matrix]:
        form = PackedMatrix if self._pack else PlainMatrix
        size = max(_BLOCK_ROWS, BLOCK_BYTES // (columns * self.dtype.itemsize))
        size -= size % _BLOCK_ROWS
        parts: list[Matrix] = []
        at = 0
        for block in _blocks(self._stream(pieces), size, self.dtype):
            own = None if bias is None else bias[at : at + block.shape[0]].clone()
            parts.append(form(block.to(self._device), own))
            at += block.shape[0]
        self._complete(pieces[0].name, at, rows)
        return parts

    def _int8(
        self, pieces: Sequence[Piece], rows: int, columns: int, bias: torch.Tensor | None
    ) -> Int8Matrix:
        codes = torch.empty((rows, columns), dtype=torch.int8)
        scales = torch.empty(rows, dtype=torch.bfloat16)
        at = 0
        for block in self._stream(pieces):
            numbers = block.to(torch.float32)
            end = at + numbers.shape[0]
            scale = numbers.abs().amax(1).div_(_INT8_MAX).clamp_(min=1e-12).to(torch.bfloat16)
            scales[at:end] = scale
            numbers = numbers / scale.to(torch.float32).unsqueeze(1)
            codes[at:end] = numbers.round_().clamp_(-_INT8_MAX - 1, _INT8_MAX)
            at = end
        self._complete(pieces[0].name, at, rows)
        return Int8Matrix(codes, scales, bias)

    def _int4(
        self, pieces: Sequence[Piece], rows: int, columns: int, bias: torch.Tensor | None
    ) -> Int4Matrix:
        packed = torch.empty((rows, columns // 2), dtype=torch.uint8)
        scales = torch.empty((columns // GROUP, rows, 2), dtype=torch.bfloat16)
        size = max(_BLOCK_ROWS, BLOCK_BYTES // (4 * columns))
        size -= size % _BLOCK_ROWS
        at = 0
        for scale, minimum in _blocks2(self._scales(pieces, codes := []), size):
            raise NotImplementedError
        self._complete(pieces[0].name, at, rows)
        return Int4Matrix(packed, scales, columns, bias)
