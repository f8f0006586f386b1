"""From a GGUF tensor's codes to numbers, or to one shape of 4-bit codes, in small pieces."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import Q4_K, dequantize

from diffuse_core.adapters.models.gguf_header import CODES
from diffuse_core.adapters.models.stored_tensor import PIECE_BYTES, PLAIN, cut_rows, read_range
from diffuse_core.domain.shapes import GROUP
from diffuse_core.model_ports import GroupCodes, RawTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from diffuse_core.adapters.models.stored_tensor import StoredTensor

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.float32]
    Unpacked = tuple[Bytes, Numbers, Numbers]

_BLOCKS = {
    name: (GGMLQuantizationType(n), numbers, size) for n, (name, numbers, size) in CODES.items()
}
_Item = TypeVar("_Item", bound=np.generic)
_STEP = 2048
"""Blocks decoded at once: what they take on the way stays in the processor's cache."""


def read_pieces(tensor: StoredTensor, heads: int) -> Iterator[RawTensor]:
    """A tensor's rows in blocks; codes become fp32, plain numbers stay as they are.

    Takes the memory of one block. With `heads` > 0 the rows are those of a Llama query or key and
    are put back in `transformers`' order.

    Raises:
        ModelUnusable: the file cannot be read or has changed.
    """
    _, block, block_bytes = _BLOCKS[tensor.kind]
    whole_blocks = tensor.columns % block == 0
    plain = PLAIN.get(tensor.kind)
    for first, count in _spans(tensor, heads, block):
        raw = _read(tensor, first, count, block, block_bytes)
        if whole_blocks:
            raw = _in_order(raw, tensor, count, heads)
        shape = (count, *tensor.shape[1:])
        if plain is not None:
            yield RawTensor(plain, shape, raw.data.cast("B"))
            continue
        numbers = _decode(tensor.kind, raw.reshape(-1, block_bytes), block)
        if not whole_blocks:
            numbers = _in_order(numbers, tensor, count, heads)
        yield RawTensor("fp32", shape, numbers.data.cast("B"))


def read_codes(tensor: StoredTensor, heads: int) -> Iterator[GroupCodes] | None:
    """As `read_pieces`, the codes of a 4-bit matrix; None for other tensors."""
    unpack = _UNPACK.get(tensor.kind)
    if unpack is None or len(tensor.shape) != 2:
        return None
    return _codes(tensor, heads, unpack)


def _codes(
    tensor: StoredTensor, heads: int, unpack: Callable[[Bytes], Unpacked]
) -> Iterator[GroupCodes]:
    _, block, block_bytes = _BLOCKS[tensor.kind]
    for first, count in _spans(tensor, heads, block):
        raw = _read(tensor, first, count, block, block_bytes)
        raw = _in_order(raw, tensor, count, heads).reshape(-1, block_bytes)
        codes, scales, minima = unpack(raw)
        yield GroupCodes(
            (count, tensor.columns),
            GROUP,
            codes.data.cast("B"),
            scales.data.cast("B"),
            minima.data.cast("B"),
        )


def _spans(tensor: StoredTensor, heads: int, block: int) -> Iterator[tuple[int, int]]:
    """First row and count of each piece: whole blocks and, where heads are reordered, heads."""
    unit = tensor.shape[0] // heads if heads else 1
    if tensor.columns % block:
        unit = math.lcm(unit, block)
    return cut_rows(tensor.shape[0], tensor.columns * 4, PIECE_BYTES, unit)


def _read(tensor: StoredTensor, first: int, count: int, block: int, block_bytes: int) -> Bytes:
    row = tensor.columns * block_bytes
    raw = np.empty(count * row // block, np.uint8)
    read_range(tensor, first * row // block, raw.data.cast("B"))
    return raw


def _in_order(
    rows: NDArray[_Item], tensor: StoredTensor, count: int, heads: int
) -> NDArray[_Item]:
    """Put whole heads' rows, of any width, back in `transformers`' order.

    llama.cpp's converter stores each head's rows with the two halves interleaved:
    https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py (permute).
    """
    if not heads:
        return rows
    half = tensor.shape[0] // heads // 2
    pairs = rows.reshape(count // (2 * half), half, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1)


def _decode(kind: str, blocks: Bytes, block: int) -> Numbers:
    code = _BLOCKS[kind][0]
    unpack = _UNPACK.get(kind)
    result = np.empty(len(blocks) * block, np.float32)
    for first in range(0, len(blocks), _STEP):
        some = blocks[first : first + _STEP]
        target = result[first * block : (first + len(some)) * block]
        if unpack is None:
            target[:] = dequantize(some.reshape(1, -1), code).reshape(-1)
        else:
            codes, scales, minima = unpack(some)
            groups = target.reshape(-1, GROUP)
            np.multiply(codes.reshape(-1, GROUP), scales[:, None], out=groups)
            groups += minima[:, None]
    return result


def _halves(codes: Bytes, width: int) -> Bytes:
    """Low then high 4 bits of each `width` bytes."""
    result = np.empty((len(codes), codes.shape[1] // width, 2, width), np.uint8)
    packed = codes.reshape(len(codes), -1, width)
    np.bitwise_and(packed, 0x0F, out=result[:, :, 0])
    np.right_shift(packed, 4, out=result[:, :, 1])
    return result


def _fp16(blocks: Bytes, start: int) -> Numbers:
    return blocks[:, start : start + 2].copy().view(np.float16).astype(np.float32).reshape(-1)


def _unpack_q4_0(blocks: Bytes) -> Unpacked:
    scales = _fp16(blocks, 0)
    return _halves(blocks[:, 2:], 16), scales, -8 * scales


def _unpack_q4_1(blocks: Bytes) -> Unpacked:
    return _halves(blocks[:, 4:], 16), _fp16(blocks, 0), _fp16(blocks, 2)


def _unpack_q4_k(blocks: Bytes) -> Unpacked:
    scales, minima = Q4_K.get_scale_min(blocks[:, 4:16].copy())
    return (
        _halves(blocks[:, 16:], 32),
        (_fp16(blocks, 0)[:, None] * scales.astype(np.float32)).reshape(-1),
        (-_fp16(blocks, 2)[:, None] * minima.astype(np.float32)).reshape(-1),
    )


_UNPACK: dict[str, Callable[[Bytes], Unpacked]] = {
    "Q4_0": _unpack_q4_0,
    "Q4_1": _unpack_q4_1,
    "Q4_K": _unpack_q4_k,
}
"""Encodings whose numbers are scale * code + minimum over groups of GROUP."""
