"""Reading a safetensors file's header without believing it.

The format is that of https://github.com/huggingface/safetensors#format: 8 bytes length, JSON,
data. Every offset is checked against the file's size before it is used.
"""

from __future__ import annotations

import itertools
import stat
from typing import TYPE_CHECKING, Annotated

import msgspec

from diffuse_core.adapters.models.stored_tensor import StoredTensor
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from pathlib import Path

MAX_HEADER_BYTES = 32 * 2**20
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Encodings that can be read; others are told of, but not read."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class _Entry(msgspec.Struct):
    dtype: Annotated[str, msgspec.Meta(max_length=32)]
    shape: Annotated[list[_Count], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Count, _Count]


_raw_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry_decoder = msgspec.json.Decoder(_Entry)


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """The file's tensors by name.

    Raises:
        ModelUnusable: not a safetensors file, damaged, truncated, or in an unknown encoding.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            # Opening a pipe would wait for whoever writes to it.
            raise ModelUnusable(f"{path} is no regular file; download it again")
        size = found.st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length < 2 or length > MAX_HEADER_BYTES:
                raise _no_header(path, start)
            if 8 + length > size:
                raise ModelUnusable(
                    f"{path} is truncated: its header ends at byte {8 + length} but the file has "
                    f"{size}; download it again"
                )
            head = file.read(length)
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from error
    return _tensors(path, head, 8 + length, size)


def _no_header(path: Path, start: bytes) -> ModelUnusable:
    if start == b"version ":
        return ModelUnusable(
            f"{path} is a git-lfs pointer, not the weights; run `git lfs pull` there"
        )
    return ModelUnusable(f"{path} is no safetensors file, or damaged; download it again")


def _tensors(path: Path, head: bytes, data: int, size: int) -> dict[str, StoredTensor]:
    try:
        raw = _raw_decoder.decode(head)
        raw.pop("__metadata__", None)
        entries = {name: _entry_decoder.decode(entry) for name, entry in raw.items()}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ModelUnusable(
            f"{path} is damaged: its header cannot be read ({error}); download it again"
        ) from error
    tensors = {name: _placed(path, name, entry, data, size) for name, entry in entries.items()}
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for one, other in itertools.pairwise(ordered):
        if one.offset + one.size > other.offset:
            raise ModelUnusable(
                f"{path} is damaged: the tensors {one.name} and {other.name} lie over each other; "
                "download it again"
            )
    return tensors


def _placed(path: Path, name: str, entry: _Entry, data: int, size: int) -> StoredTensor:
    begin, end = entry.data_offsets
    tensor = StoredTensor(
        name, name, entry.dtype, tuple(entry.shape), str(path), data + begin, end - begin
    )
    # Masks and counters of any type may lie beside the weights; what is read is of these types.
    item = ITEM_BYTES.get(entry.dtype)
    if begin > end or (item and (tensor.size != tensor.numbers * item or tensor.size == 0)):
        raise ModelUnusable(
            f"{path} is damaged: tensor {name} has {tensor.size} bytes for shape {tensor.shape} "
            f"of {entry.dtype}; download it again"
        )
    if data + end > size:
        raise ModelUnusable(
            f"{path} is truncated: tensor {name} ends at byte {data + end} but the file has "
            f"{size}; download it again"
        )
    return tensor
