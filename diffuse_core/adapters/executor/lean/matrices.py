"""Matrices as they are held and multiplied: in fp32 or bf16, in 8 bits, in 4 bits.

What is used is torch's own. Measured on a Zen 5 core, one thread, the 120 matrices of
SmolLM2-135M's layers, milliseconds for one row and for 128:

    F.linear bf16 14 and 66; oneDNN with weights packed beforehand 4.7 and 58;
    _weight_int4pack_mm_for_cpu 4.0 and 154; _weight_int8pack_mm 6.5 and 171.

torchao was weighed: for weight-only integers its CPU path calls the same two kernels of torch,
and its own kernels quantise activations too, so it would add a dependency and no speed. The
packed forms also give a row the same bits whatever rows go with it, as long as there are two.
For many rows of one prompt codes are unpacked first (`unpacked`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean import bf16
from diffuse_core.domain.shapes import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Matrix(ABC):
    """A weight (rows, columns) with an optional bias: x (n, columns) → (n, rows)."""

    alone = 1
    """With how few rows of x a row's result is expected to be what it is among many."""
    readable = False
    """Whether `rows_of` gives what is held."""

    def __init__(self, rows: int, columns: int, nbytes: int) -> None:
        self.rows = rows
        self.columns = columns
        self.nbytes = nbytes

    @abstractmethod
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""

    def rows_of(self, _ids: torch.Tensor) -> torch.Tensor | None:
        """Rows (n, columns) in fp32; None where they cannot be had."""
        return None

    def onto(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The product plus `residual` (n, rows)."""
        return self(x).add_(residual)

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """SiLU of the product."""
        return functional.silu(self(x), inplace=True)

    def times(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """The product, elementwise times `factor` (n, rows)."""
        return self(x).mul_(factor)


def can_pack(dtype: torch.dtype, device: str) -> bool:
    """Whether oneDNN's packed matrices are there for this type."""
    if device != "cpu" or not torch._C._has_mkldnn:
        return False
    return dtype == torch.float32 or not bf16.is_slow(dtype, device)


class PlainMatrix(Matrix):
    """Multiplied as it is."""

    readable = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight.shape[0], weight.shape[1], weight.nbytes + _size(bias))
        self.weight = weight
        self.bias = bias
        # Some libraries' one-row products add in another order than those of more rows. Where
        # torch adds number by number they do not, and each row more costs as much as the first.
        self.slow = bf16.is_slow(weight.dtype, weight.device.type)
        self.alone = 1 if self.slow else 8

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return functional.linear(x, self.weight, self.bias)

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows (n, columns) in fp32."""
        return self.weight.index_select(0, ids).to(torch.float32)


class PackedMatrix(Matrix):
    """Laid out anew for oneDNN once, with what follows the product done in the same kernel."""

    alone = 2

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight.shape[0], weight.shape[1], weight.nbytes + _size(bias))
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = bias
        self._unary: Callable[..., torch.Tensor] = torch.ops.mkldnn._linear_pointwise.default
        self._binary: Callable[..., torch.Tensor] = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return self._unary(x, self._weight, self._bias, "none", [], "")

    def onto(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The product plus `residual`, in one kernel."""
        return self._binary(x, residual, self._weight, self._bias, "add")

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """SiLU of the product, in one kernel."""
        return self._unary(x, self._weight, self._bias, "swish", [], "")

    def times(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """The product times `factor`, in one kernel."""
        return self._binary(x, factor, self._weight, self._bias, "mul")


class CodedMatrix(Matrix):
    """4-bit codes, with a bf16 scale and offset for each 32 numbers of a row; x is bf16.

    The kernel's number is scale * (code - 8) + offset.
    """

    repeats = 1
    """How often x is put beside itself for the kernel."""

    def __init__(
        self,
        packed: torch.Tensor,
        scales: torch.Tensor,
        rows: int,
        bias: torch.Tensor | None = None,
    ) -> None:
        """`packed` (padded rows, codes / 2) as the kernel has it, `scales` (groups, rows, 2).

        The kernel takes whole blocks of rows; `rows` of them are the matrix's.
        """
        size = packed.nbytes + scales.nbytes + _size(bias)
        super().__init__(rows, 2 * packed.shape[1] // self.repeats, size)
        self._packed = packed
        self._scales = scales
        self.held_rows = packed.shape[0]
        """With those that the last block is filled up with."""
        self.bias = bias

    @abstractmethod
    def numbers(self, blocks: slice, half: int, dtype: torch.dtype) -> torch.Tensor:
        """Of some blocks of rows, all numbers (columns, rows).

        Args:
            blocks: which of them; each has 2 * `half` rows, of which the last may be padding.
            half: what `packed_half` gives.
            dtype: the type to compute them in.
        """

    def _bytes(self, blocks: slice, half: int) -> torch.Tensor:
        """The packed codes (blocks, codes a row, half)."""
        return self._packed.view(-1, self._packed.shape[1] * 2, half)[blocks]

    def _places(
        self, blocks: slice, half: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scales and offsets (groups, 1, rows) of some blocks of rows."""
        size = 2 * half
        rows = self._scales[:, blocks.start * size : blocks.stop * size].to(dtype)
        return rows[..., 0].contiguous().unsqueeze(1), rows[..., 1].contiguous().unsqueeze(1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        product = torch._weight_int4pack_mm_for_cpu(x, self._packed, GROUP, self._scales)
        if self.held_rows != self.rows:
            product = product[:, : self.rows].contiguous()
        return product if self.bias is None else product.add_(self.bias)


class Int4Matrix(CodedMatrix):
    """A matrix in 4 bits."""

    def numbers(self, blocks: slice, half: int, dtype: torch.dtype) -> torch.Tensor:
        """Of some blocks of rows, all numbers (columns, rows)."""
        both = self._bytes(blocks, half)
        low, high = (both & 15).view(torch.int8), (both >> 4).view(torch.int8)
        codes = _in_rows(low.sub_(8), high.sub_(8), dtype)
        scale, offset = self._places(blocks, half, dtype)
        groups = codes.view(len(scale), GROUP, -1)
        return torch.addcmul(offset, groups, scale, out=groups).view(codes.shape)


class Int8Matrix(CodedMatrix):
    """A matrix in 8 bits: the upper halves of its codes beside the lower ones, twice 4 bits.

    A code c from -128 to 127 is 16 * (c >> 4) + (c & 15), so that the 4-bit kernel over
    [upper, lower] and [x, x] gives the product with a scale for each 32 numbers. The kernel that
    torch has for 8 bits knows one scale a row only, with which SmolLM2's text suffers: mean KL
    to fp32 0.0039 for the layers and 0.0019 for the head, with groups of 32 0.0017 and 0.0001.
    """

    readable = True
    repeats = 2

    def numbers(self, blocks: slice, half: int, dtype: torch.dtype) -> torch.Tensor:
        """Of some blocks of rows, all numbers (columns, rows)."""
        upper, lower = self._bytes(blocks, half).chunk(2, 1)
        # The upper half's codes count from 8 on, which the sign bit turns into one from 0 on.
        low = ((upper << 4) | (lower & 15)).bitwise_xor_(128).view(torch.int8)
        high = ((upper & 240) | (lower >> 4)).bitwise_xor_(128).view(torch.int8)
        codes = _in_rows(low, high, dtype)
        scale, _ = self._places(blocks, half, dtype)
        groups = codes.view(len(scale) // 2, GROUP, -1)
        return groups.mul_(scale[len(groups) :]).view(codes.shape)

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor | None:
        """Rows (n, columns) in fp32; None when the kernel's layout is not known."""
        half = packed_half()
        if half is None:
            return None
        blocks = self._packed.view(-1, self._packed.shape[1] * 2, half)
        codes = blocks[ids // (2 * half), :, ids % half]
        shifts = (ids % (2 * half) // half * 4).to(torch.uint8).unsqueeze(1)
        numbers = ((codes >> shifts) & 15).to(torch.float32)
        scales = self._scales[:, ids].to(torch.float32)
        groups = numbers.view(len(ids), -1, GROUP)
        scale, offset = scales[..., 0].t().unsqueeze(2), scales[..., 1].t().unsqueeze(2)
        both = ((groups - 8) * scale + offset).view(len(ids), 2, -1)
        return both.sum(1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return super().__call__(torch.cat((x, x), 1))


@lru_cache(maxsize=1)
def packed_half() -> int | None:
    """Half of the rows that the 4-bit kernel's layout keeps together, on this machine.

    Of a block, byte [k, i] has the code of row i in its lower and of row i + half in its upper
    bits. This is no promise of torch's: it is tried, and None when none of the known sizes fits.
    """
    rows, columns = 128, 32
    numbers = torch.arange(rows * columns, dtype=torch.int32).view(rows, columns)
    codes = (numbers * 7 + numbers // 16) % 16
    packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    for half in (32, 16, 8):
        blocks = packed.view(-1, columns, half)
        both = torch.cat((blocks & 15, blocks >> 4), 2)
        if torch.equal(both.transpose(1, 2).reshape(rows, columns).to(torch.int32), codes):
            return half
    return None


def _in_rows(low: torch.Tensor, high: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Codes (blocks, columns, half) of rows i and of rows i + half, as (columns, rows)."""
    blocks, columns, half = low.shape
    codes = torch.empty((columns, blocks, 2, half), dtype=dtype)
    codes.select(2, 0).copy_(low.transpose(0, 1))
    codes.select(2, 1).copy_(high.transpose(0, 1))
    return codes.view(columns, -1)


class CodedTable:
    """An embedding in 8 bits: int8 codes (rows, columns), a bf16 scale for each 32 of a row."""

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor) -> None:
        self.nbytes = codes.nbytes + scales.nbytes
        self._codes = codes
        self._scales = scales

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows (n, columns), bf16."""
        scales = self._scales.index_select(0, ids).unsqueeze(2)
        codes = self._codes.index_select(0, ids).to(torch.bfloat16)
        return (codes.view(*scales.shape[:2], -1) * scales).view_as(codes)


class Stack(Matrix):
    """Matrices of the same columns, one below the other."""

    def __init__(self, parts: Sequence[Matrix]) -> None:
        rows = [part.rows for part in parts]
        super().__init__(sum(rows), parts[0].columns, sum(part.nbytes for part in parts))
        self.parts = tuple(parts)
        self.alone = max(part.alone for part in parts)
        self.readable = all(part.readable for part in parts)
        self._rows = rows

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor | None:
        """Rows (n, columns) in fp32; None where a part does not give them."""
        found = torch.empty((len(ids), self.columns), device=ids.device)
        at = 0
        for part in self.parts:
            mine = (ids >= at) & (ids < at + part.rows)
            own = part.rows_of(ids[mine] - at)
            if own is None:
                return None
            found[mine] = own
            at += part.rows
        return found

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return torch.cat([part(x) for part in self.parts], 1)

    def onto(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The product plus `residual` (n, rows)."""
        return torch.cat([part.onto(x, piece) for part, piece in self._with(residual)], 1)

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """SiLU of the product."""
        return torch.cat([part.gate(x) for part in self.parts], 1)

    def times(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """The product, elementwise times `factor` (n, rows)."""
        return torch.cat([part.times(x, piece) for part, piece in self._with(factor)], 1)

    def _with(self, other: torch.Tensor) -> list[tuple[Matrix, torch.Tensor]]:
        pieces = [piece.contiguous() for piece in torch.split(other, self._rows, 1)]
        return list(zip(self.parts, pieces, strict=True))


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """One matrix of several."""
    return parts[0] if len(parts) == 1 else Stack(parts)


def _size(bias: torch.Tensor | None) -> int:
    return 0 if bias is None else bias.nbytes
