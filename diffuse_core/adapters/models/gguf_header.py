"""Reading a GGUF file's header without believing it.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version,
counts, key-values, tensor infos, padding, data. Every count and length is checked against a limit
and against what is left of the file before anything is read or allocated.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)

MAX_KEYS = 65_536
MAX_TENSORS = 131_072
MAX_ITEMS = 2**21
MAX_STRING = 16 * 2**20
MAX_HEADER_BYTES = 256 * 2**20
MAX_NAME = 256
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 65_536

CODES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}
"""Encodings that can be read: ggml's number → (name, numbers per block, bytes per block)."""

_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


class GgufTensor(msgspec.Struct, frozen=True):
    """A tensor as the file describes it; `shape` in row-major order, `offset` in the file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    size: int


class GgufHeader(msgspec.Struct, frozen=True):
    """Key-values as plain Python values (arrays as lists), and the tensors by name."""

    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]


def is_gguf(path: Path) -> bool:
    """Whether the file begins with GGUF's magic."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header.

    Raises:
        ModelUnusable: not a GGUF file, damaged, truncated, of an unknown version or encoding, or
            claiming more than the file holds.
    """
    try:
        with path.open("rb", buffering=2**20) as file:
            return _Reader(path, file, path.stat().st_size).header()
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from error


class _Reader:
    """A cursor that never reads past the file's end nor past the header's limit."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.file = file
        self.size = size
        self.position = 0
        self.items = 0

    def header(self) -> GgufHeader:
        if self.size < len(MAGIC) or self.take(len(MAGIC)) != MAGIC:
            raise ModelUnusable(f"{self.path} is not a GGUF file (it does not begin with GGUF)")
        version = self.number("I")
        if version not in VERSIONS:
            raise ModelUnusable(
                f"{self.path} is GGUF version {version}; versions 2 and 3 in little-endian order "
                "can be read: convert it again with a current converter"
            )
        tensor_count = self.count(MAX_TENSORS, 24, "tensors")
        key_count = self.count(MAX_KEYS, 13, "keys")
        metadata: dict[str, object] = {}
        for _ in range(key_count):
            key = self.text(MAX_NAME)
            if key in metadata:
                raise self.damaged(f"the key {key!r} comes twice")
            metadata[key] = self.value(self.number("I"))
        infos = [self.tensor_info() for _ in range(tensor_count)]
        return GgufHeader(metadata, self.place(infos, self.alignment(metadata)))

    def take(self, length: int) -> bytes:
        if self.position + length > self.size:
            raise ModelUnusable(
                f"{self.path} is truncated: its header goes on past its end at byte {self.size}; "
                "download it again"
            )
        if self.position + length > MAX_HEADER_BYTES:
            raise self.damaged(f"its header passes {MAX_HEADER_BYTES} bytes")
        data = self.file.read(length)
        if len(data) != length:
            raise self.damaged("it shrank while it was read")
        self.position += length
        return data

    def number(self, code: str) -> int:
        value = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        assert isinstance(value, int)  # noqa: S101 - only integer codes are passed
        return value

    def count(self, limit: int, least: int, what: str) -> int:
        """A 64-bit count of things that take at least `least` bytes each."""
        value = self.number("Q")
        if value > limit:
            raise self.damaged(f"it claims {value} {what} (at most {limit} are accepted)")
        if value * least > self.size - self.position:
            raise ModelUnusable(
                f"{self.path} is truncated or damaged: it claims {value} {what}, more than its "
                f"{self.size} bytes can hold; download it again"
            )
        return value

    def text(self, limit: int) -> str:
        length = self.count(limit, 1, "bytes in one text")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a text in it is not UTF-8") from error

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.text(MAX_STRING)
        if kind == _ARRAY:
            return self.array()
        return self.scalars(kind, 1)[0]

    def array(self) -> list[object]:
        kind = self.number("I")
        count = self.count(MAX_ITEMS, 8 if kind == _STRING else 1, "array items")
        self.items += count
        if self.items > MAX_ITEMS:
            raise self.damaged(f"its arrays hold more than {MAX_ITEMS} items")
        if kind == _STRING:
            return [self.text(MAX_STRING) for _ in range(count)]
        return self.scalars(kind, count)

    def scalars(self, kind: int, count: int) -> list[object]:
        code = _SCALARS.get(kind)
        if code is None:
            raise self.damaged(f"it has a value of the unknown kind {kind}")
        layout = f"<{count}{code}"
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))

    def tensor_info(self) -> GgufTensor:
        """One entry; its offset is still relative to the data's start."""
        name = self.text(MAX_NAME)
        dimensions = self.number("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise self.damaged(f"tensor {name!r} has {dimensions} dimensions")
        sides = tuple(self.number("Q") for _ in range(dimensions))
        kind, block, block_bytes = self.code(name, self.number("I"))
        offset = self.number("Q")
        numbers = 1
        for side in sides:
            numbers *= side
        # ggml counts the fastest-running side first, and codes run along it in whole blocks.
        if numbers == 0 or sides[0] % block:
            raise self.damaged(f"tensor {name!r} has the impossible shape {sides} for {kind}")
        return GgufTensor(name, kind, sides[::-1], offset, numbers // block * block_bytes)

    def code(self, name: str, number: int) -> tuple[str, int, int]:
        found = CODES.get(number)
        if found is None:
            names = ", ".join(kind for kind, _, _ in CODES.values())
            raise ModelUnusable(
                f"{self.path}: tensor {name!r} has the encoding number {number}, which is not "
                f"supported; use a file with {names}"
            )
        return found

    def alignment(self, metadata: dict[str, object]) -> int:
        value = metadata.get("general.alignment", 32)
        if not isinstance(value, int) or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
            raise self.damaged(f"its alignment {value!r} is no small power of two")
        return value

    def place(self, infos: list[GgufTensor], alignment: int) -> dict[str, GgufTensor]:
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for info in infos:
            if info.name in tensors:
                raise self.damaged(f"tensor {info.name!r} comes twice")
            if info.offset % alignment:
                raise self.damaged(f"tensor {info.name!r} is not aligned")
            end = start + info.offset + info.size
            if end > self.size:
                raise ModelUnusable(
                    f"{self.path} is truncated: tensor {info.name} ends at byte {end} but the "
                    f"file has {self.size}; download it again"
                )
            placed = msgspec.structs.replace(info, offset=start + info.offset)
            tensors[info.name] = placed
        return tensors

    def damaged(self, what: str) -> ModelUnusable:
        return ModelUnusable(f"{self.path} is damaged: {what}; download it again")
