"""From a GGUF tensor's codes to numbers, in small pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from diffuse_core.adapters.models.gguf_header import CODES
from diffuse_core.adapters.models.stored_tensor import read_range
from diffuse_core.ports import RawTensor

if TYPE_CHECKING:
    from diffuse_core.adapters.models.stored_tensor import StoredTensor

_BLOCKS = {
    name: (GGMLQuantizationType(n), numbers, size) for n, (name, numbers, size) in CODES.items()
}
_PLAIN: dict[str, Literal["fp32", "fp16", "bf16"]] = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
_PIECE_BLOCKS = 65_536


def read_numbers(tensor: StoredTensor) -> RawTensor:
    """Read one tensor; codes become fp32, plain numbers stay as they are.

    Takes the memory of the result and a few MiB.

    Raises:
        ModelUnusable: the file cannot be read or has changed.
    """
    plain = _PLAIN.get(tensor.kind)
    if plain is not None:
        data = bytearray(tensor.size)
        read_range(tensor, 0, memoryview(data))
        return RawTensor(plain, tensor.shape, data)
    code, numbers, block_bytes = _BLOCKS[tensor.kind]
    result = np.empty(tensor.numbers, np.float32)
    blocks = tensor.size // block_bytes
    for first in range(0, blocks, _PIECE_BLOCKS):
        count = min(_PIECE_BLOCKS, blocks - first)
        codes = np.empty((count, block_bytes), np.uint8)
        read_range(tensor, first * block_bytes, codes.data.cast("B"))
        start = first * numbers
        result[start : start + count * numbers] = dequantize(codes, code).reshape(-1)
    return RawTensor("fp32", tensor.shape, result.data.cast("B"))


def unpermute_heads(raw: RawTensor, heads: int) -> RawTensor:
    """Put the rows of a Llama query or key back in `transformers`' order, in place.

    llama.cpp's converter stores each head's rows with the two halves interleaved:
    https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py (permute).
    """
    rows = np.frombuffer(raw.data, np.uint8).reshape(heads, raw.shape[0] // heads, -1)
    for head in rows:
        pairs = head.reshape(head.shape[0] // 2, 2, -1)
        head[:] = pairs.swapaxes(0, 1).reshape(head.shape)
    return raw
