"""Between bytes and torch tensors."""

from __future__ import annotations

import math

import torch

from diffuse_core.model_ports import RawTensor, Tensor, TensorType

DTYPES: dict[TensorType, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
_STORED: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def view_stored(raw: RawTensor) -> torch.Tensor:
    """The numbers of `raw` as they lie there, to be read and not kept."""
    return over(raw.data, _STORED[raw.dtype]).view(raw.shape)


def from_wire(tensor: Tensor) -> torch.Tensor:
    """A tensor of its own, aligned memory with the numbers of a checked `tensor`."""
    return over(tensor.data, DTYPES[tensor.dtype]).view(tensor.shape).clone()


def to_wire(tensor: torch.Tensor, dtype: TensorType) -> Tensor:
    """The bytes of a tensor that has the type `dtype` already."""
    # numpy knows no bfloat16: the bytes are taken through an integer of the same width.
    plain = tensor.contiguous()
    carrier = plain.view(torch.int16) if dtype == "bf16" else plain
    return Tensor(dtype, tuple(tensor.shape), carrier.numpy().tobytes())


def rows_rms(rows: torch.Tensor) -> tuple[float, ...]:
    """Root mean square of each row (n, width); one with NaN or infinity in it is not finite."""
    root = float(rows.shape[1]) ** 0.5
    found = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32).tolist()
    if not all(map(math.isfinite, found)):
        # Squares of large numbers are too large for fp32, though the numbers are not.
        found = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).tolist()
    return tuple(norm / root for norm in found)


def over(data: bytes | bytearray | memoryview, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of raw little-endian `data`, in one row, to be read and not kept."""
    view = memoryview(data)
    # torch only takes writable memory; what arrives from the network may be read-only.
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=dtype)
