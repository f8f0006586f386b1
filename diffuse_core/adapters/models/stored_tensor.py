"""Where the tensors of a model lie in its files, and what all of them together are.

Reads are positioned reads of exactly one tensor's bytes: what a Slice does not need is never
touched, and no mapping keeps pages of it in memory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.errors import ModelUnusable
from diffuse_core.model_ports import RawTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SAMPLE_BYTES = 64
PIECE_BYTES = 4 * 2**20
"""About how much of a tensor is in memory at once while it is read."""

PLAIN: dict[str, Literal["fp32", "fp16", "bf16"]] = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
"""Encodings that are plain numbers."""

_BITS = {"F32": 32, "F16": 16, "BF16": 16, "Q2_K": 2, "Q3_K": 3, "Q4_0": 4, "Q4_1": 4, "Q4_K": 4}
_BITS |= {"Q5_0": 5, "Q5_1": 5, "Q5_K": 5, "Q6_K": 6, "Q8_0": 8}
# Codes that stand for numbers of a table: no scale and minimum makes them of 4 bits.
_BITS |= {"IQ4_NL": 5, "IQ4_XS": 5}


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor in a file. `name` is that of the `transformers` parameter; `kind` the encoding.

    `label` is what the file calls it, for errors.
    """

    name: str
    label: str
    kind: str
    shape: tuple[int, ...]
    path: str
    offset: int
    size: int

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        product = 1
        for side in self.shape:
            product *= side
        return product

    @property
    def bits(self) -> int:
        """Bits of one number, scales not counted; 4 only where `scale * code + minimum` holds."""
        return _BITS[self.kind]

    @property
    def columns(self) -> int:
        """How many numbers a row of the first axis has."""
        return self.numbers // self.shape[0]


def cut_rows(rows: int, row_bytes: int, limit: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """First row and count of pieces of at most `limit` bytes, but of `unit` rows at least.

    `rows` is a multiple of `unit`, and so is every piece.
    """
    step = max(1, limit // (unit * row_bytes)) * unit
    for first in range(0, rows, step):
        yield first, min(step, rows - first)


def plain_pieces(tensor: StoredTensor) -> Iterator[RawTensor]:
    """A tensor of a PLAIN encoding, in blocks of whole rows.

    Raises:
        ModelUnusable: the file cannot be read or has changed.
    """
    row = tensor.size // tensor.shape[0]
    for first, count in cut_rows(tensor.shape[0], row, PIECE_BYTES):
        data = bytearray(count * row)
        read_range(tensor, first * row, memoryview(data))
        yield RawTensor(PLAIN[tensor.kind], (count, *tensor.shape[1:]), data)


def read_range(tensor: StoredTensor, start: int, target: memoryview) -> None:
    """Fill `target` with the tensor's bytes from `start` (relative to the tensor) on.

    Raises:
        ModelUnusable: the file cannot be read, or ends early: it changed since it was opened.
    """
    try:
        with Path(tensor.path).open("rb", buffering=0) as file:
            file.seek(tensor.offset + start)
            done = 0
            while done < len(target):
                count = file.readinto(target[done:])
                if not count:
                    raise ModelUnusable(
                        f"{tensor.path} ended while tensor {tensor.label} was read: the file "
                        "changed; check it, or download it again"
                    )
                done += count
    except OSError as error:
        raise ModelUnusable(f"{tensor.path} cannot be read: {error.strerror}") from error


def sample_places(tensor: StoredTensor) -> list[tuple[int, int]]:
    """Start and length of the samples of a tensor that `content_digest` reads."""
    length = min(SAMPLE_BYTES, tensor.size)
    return [(start, length) for start in (0, (tensor.size - length) // 2, tensor.size - length)]


def content_digest(config: Mapping[str, object], tensors: Iterable[StoredTensor]) -> str:
    """SHA-256 (hexadecimal) of what the weights are.

    Covers the settings, every tensor's name, encoding and shape, and SAMPLE_BYTES of it from
    the start, the middle and the end. It does not depend on where the files lie or how the
    tensors are spread over them. A change outside the samples is not seen: this tells models
    apart, it is no checksum of a download.

    Raises:
        ModelUnusable: a file cannot be read.
    """
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    head = msgspec.json.encode(
        [dict(config), [[t.name, t.kind, t.shape] for t in ordered]], order="deterministic"
    )
    digest = hashlib.sha256(b"diffuse model 1\x00" + head)
    for tensor in ordered:
        for start, length in sample_places(tensor):
            sample = bytearray(length)
            read_range(tensor, start, memoryview(sample))
            digest.update(sample)
    return digest.hexdigest()


def network_id(path: Path) -> str:
    """A model's name on the network from its file or directory: printable, at most 128."""
    stem = path.name.removesuffix(".gguf")
    text = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem)
    return text.strip("-")[:128] or "model"
