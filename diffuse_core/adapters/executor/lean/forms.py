"""From a source's tensors to the matrices a contract holds, a few MiB at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean.matrices import (
    CodedTable,
    Int4Matrix,
    Int8Matrix,
    Matrix,
    PackedMatrix,
    PlainMatrix,
    can_pack,
    stacked,
)
from diffuse_core.adapters.executor.reading import broken
from diffuse_core.adapters.executor.tensors import DTYPES, over, view_stored
from diffuse_core.domain.shapes import GROUP, HIDDEN_TYPE, end_bits, matrix_bits
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import GroupCodes, WeightSource

BLOCK_BYTES = 4 * 2**20
"""Of a matrix laid out anew at a time: what loading takes beyond the matrix itself, twice."""
MOST_BLOCKS = 12
"""Of one matrix: the more there are, the more products a pass takes."""
CODED_NUMBERS = 2**18
"""Numbers that are turned into codes at a time."""
_BLOCK_ROWS = 64
"""Rows that the 4-bit kernel's layout keeps together; matrices are filled up to whole blocks."""
_CODE_TOP = 15
_CODE_MIDDLE = 8
"""The 4-bit kernel's numbers count from this code on."""
_INT8_MAX = 127
_TINY = 1e-12


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
        stream = ((view_stored(raw).to(self.dtype),) for raw in self._source.pieces(piece.name))
        blocks = [block for (block,) in self._complete(stream, piece.name)]
        return interleaved(torch.cat(blocks), piece.interleave).to(self._device)

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
        for (block,) in self._numbers([Piece(name)], self.dtype):
            table[at : at + block.shape[0]] = block
            at += block.shape[0]
        return table

    def coded_table(self, name: str) -> CodedTable:
        """An embedding in 8 bits."""
        rows, columns = self._shape(name)
        codes = torch.empty((rows, columns), dtype=torch.int8)
        scales = torch.empty((rows, columns // GROUP), dtype=torch.bfloat16)
        at = 0
        for (block,) in self._few_numbers([Piece(name)]):
            end = at + block.shape[0]
            codes[at:end], scales[at:end] = coded(block)
            at = end
        return CodedTable(codes, scales)

    def head(self, name: str) -> Matrix:
        """A head: in 8 bits where layers have integers."""
        rows, columns = self._shape(name)
        return stacked(self._same([Piece(name)], end_bits(self._contract, columns), rows, None))

    def embedding(self, name: str) -> torch.Tensor | CodedTable:
        """An embedding: in 8 bits where layers have integers."""
        if end_bits(self._contract, self._shape(name)[1]) == 8:
            return self.coded_table(name)
        return self.table(name)

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
        if bits in (4, 8):
            return [self._coded(pieces, bits, rows, columns, bias)]
        return self._dense(pieces, columns, bias)

    def _dense(
        self, pieces: Sequence[Piece], columns: int, bias: torch.Tensor | None
    ) -> list[Matrix]:
        form = PackedMatrix if self._pack else PlainMatrix
        rows = sum(self._shape(piece.name)[0] for piece in pieces)
        least = BLOCK_BYTES // (columns * self.dtype.itemsize)
        size = _whole_blocks(max(least, -(-rows // MOST_BLOCKS)))
        parts: list[Matrix] = []
        at = 0
        for (block,) in regrouped(self._numbers(pieces, self.dtype), size):
            end = at + block.shape[0]
            own = None if bias is None else bias[at:end].clone()
            parts.append(form(block.to(self._device), own))
            at = end
        return parts

    def _coded(
        self,
        pieces: Sequence[Piece],
        bits: int,
        rows: int,
        columns: int,
        bias: torch.Tensor | None,
    ) -> Matrix:
        form = Int4Matrix if bits == 4 else Int8Matrix
        width = form.repeats * columns
        padded = -(-rows // _BLOCK_ROWS) * _BLOCK_ROWS
        packed = torch.empty((padded, width // 2), dtype=torch.uint8)
        scales = torch.zeros((width // GROUP, padded, 2), dtype=torch.bfloat16)
        stream = self._codes(pieces) if bits == 4 else self._halves(pieces)
        at = 0
        for codes, scale, offset in regrouped(stream, _whole_blocks(CODED_NUMBERS // width)):
            end = at + codes.shape[0]
            whole = -(-end // _BLOCK_ROWS) * _BLOCK_ROWS
            whole_codes = functional.pad(codes.to(torch.int32), (0, 0, 0, whole - end))
            packed[at:whole] = torch._convert_weight_to_int4pack_for_cpu(whole_codes, 1)
            scales[:, at:end, 0] = scale.t()
            scales[:, at:end, 1] = offset.t()
            at = end
        return form(packed, scales, rows, bias)

    def _halves(self, pieces: Sequence[Piece]) -> Iterator[tuple[torch.Tensor, ...]]:
        """8-bit codes as two of 4 bits, upper before lower, with the kernel's offsets."""
        for (block,) in self._few_numbers(pieces):
            codes, scale = coded(block)
            numbers = codes.to(torch.int32)
            both = torch.cat(((numbers >> 4) + _CODE_MIDDLE, numbers & _CODE_TOP), 1)
            scale = scale.to(torch.float32)
            offsets = torch.cat((torch.zeros_like(scale), _CODE_MIDDLE * scale), 1)
            yield both.to(torch.uint8), torch.cat((16 * scale, scale), 1), offsets

    def _few_numbers(self, pieces: Sequence[Piece]) -> Iterator[tuple[torch.Tensor, ...]]:
        """fp32 rows, few at a time: making codes takes several times what they take."""
        return self._numbers(pieces, torch.float32, CODED_NUMBERS)

    def _numbers(
        self, pieces: Sequence[Piece], dtype: torch.dtype, most: int = 2**40
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        for piece in pieces:
            stream = (
                (rows.to(dtype, copy=True),)
                for raw in self._source.pieces(piece.name)
                for rows in torch.split(view_stored(raw), max(1, most // raw.shape[-1]))
            )
            yield from _in_order(self._complete(stream, piece.name), piece.interleave)

    def _codes(self, pieces: Sequence[Piece]) -> Iterator[tuple[torch.Tensor, ...]]:
        for piece in pieces:
            own = self._source.codes(piece.name)
            stream: Iterator[tuple[torch.Tensor, ...]]
            if own is None:
                numbers = self._few_numbers([Piece(piece.name)])
                stream = (estimated(block) for (block,) in numbers)
            else:
                stream = self._complete((_unwrapped(rows) for rows in own), piece.name)
            for codes, scale, minimum in _in_order(stream, piece.interleave):
                yield codes, scale, minimum + _CODE_MIDDLE * scale

    def _complete(
        self, stream: Iterator[tuple[torch.Tensor, ...]], name: str
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """The same blocks, which must be the tensor's rows, all of them and no more."""
        shape = self._source.shape_of(name)
        rows = 0
        for block in stream:
            rows += block[0].shape[0]
            if shape is None or tuple(block[0].shape[1:]) != shape[1:] or rows > shape[0]:
                raise broken(name)
            yield block
        if shape is None or rows != shape[0]:
            raise broken(name)


def coded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 codes (n, columns) and bf16 scales (n, groups) of fp32 rows (n, columns).

    Numbers are rounded to the scale as it will be held. Where a group's numbers are codes already
    (the largest is 127 in files of 8 bits), those are what comes out: a scale is rounded by 1 in
    512 at most, and 127 codes by a quarter of a step.
    """
    groups = rows.view(rows.shape[0], -1, GROUP)
    greatest = groups.abs().amax(2, keepdim=True)
    scales = greatest.div_(_INT8_MAX).clamp_(min=_TINY).to(torch.bfloat16)
    codes = (groups / scales.to(torch.float32)).round_().clamp_(-_INT8_MAX, _INT8_MAX)
    return codes.to(torch.int8).view(rows.shape), scales.squeeze(2)


def estimated(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """4-bit codes (n, columns), scales and minima (n, groups) of fp32 rows (n, columns).

    Each group's least and greatest number become its codes 0 and 15, the others are rounded.
    """
    groups = rows.view(rows.shape[0], -1, GROUP)
    minimum, maximum = groups.aminmax(dim=2)
    scale = (maximum - minimum).div_(_CODE_TOP).clamp_(min=_TINY)
    codes = (groups - minimum.unsqueeze(2)).div_(scale.unsqueeze(2)).round_().clamp_(0, _CODE_TOP)
    return codes.flatten(1).to(torch.uint8), scale, minimum


def regrouped(
    stream: Iterator[tuple[torch.Tensor, ...]], size: int
) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same rows in blocks of `size`, the last one maybe shorter."""
    kept: list[tuple[torch.Tensor, ...]] = []
    count = 0
    for block in stream:
        start, rows = 0, block[0].shape[0]
        while start < rows:
            taken = min(size - count, rows - start)
            kept.append(tuple(tensor[start : start + taken] for tensor in block))
            start, count = start + taken, count + taken
            if count == size:
                yield _joined(kept)
                kept, count = [], 0
    if kept:
        yield _joined(kept)


def _joined(blocks: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    if len(blocks) == 1:
        return blocks[0]
    return tuple(torch.cat(tensors) for tensors in zip(*blocks, strict=True))


def _in_order(
    stream: Iterator[tuple[torch.Tensor, ...]], width: int
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Rows with each head's `width` interleaved; as they are when it is 0."""
    if not width:
        yield from stream
        return
    for block in regrouped(stream, width * max(1, _BLOCK_ROWS // width)):
        yield tuple(interleaved(tensor, width) for tensor in block)


def interleaved(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Each head's first half and second half, taken in turns.

    `transformers` turns number i of a head together with number i + width / 2.
    """
    if not width:
        return rows
    halves = rows.reshape(-1, 2, width // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def _unwrapped(rows: GroupCodes) -> tuple[torch.Tensor, ...]:
    count, columns = rows.shape
    if rows.group != GROUP:
        raise ModelUnusable(
            f"4-bit groups of {rows.group} numbers are not supported, only {GROUP}"
        )
    shape = (count, columns // GROUP)
    return (
        over(rows.codes, torch.uint8).view(count, columns),
        over(rows.scales, torch.float32).view(shape),
        over(rows.minima, torch.float32).view(shape),
    )


def _whole_blocks(rows: int) -> int:
    return max(_BLOCK_ROWS, rows - rows % _BLOCK_ROWS)
