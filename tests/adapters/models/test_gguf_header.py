"""Damaged and hostile GGUF headers: refused with a reason, before memory is taken."""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffuse_core.adapters.models.gguf_header import is_gguf, read_gguf_header
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(
    name: bytes = b"t", sides: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0
) -> bytes:
    packed = text(name) + struct.pack("<I", len(sides))
    packed += struct.pack(f"<{len(sides)}Q", *sides)
    return packed + struct.pack("<IQ", kind, offset)


def header(keys: list[bytes], tensors: list[bytes], version: int = 3) -> bytes:
    start = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    return start + b"".join(keys) + b"".join(tensors)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def padded(head: bytes, data: int) -> bytes:
    return head + b"\0" * (-len(head) % 32 + data)


GOOD = padded(header([key(b"k", 4, struct.pack("<I", 7))], [tensor()]), 128)

BAD = {
    "does not begin with GGUF": b"GGML" + GOOD[4:],
    "does not begin with": b"",
    "version 1;": header([], [], version=1),
    "version 50331648": b"GGUF" + struct.pack(">I", 3) + GOOD[8:],
    "at most 65536": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63) + b"\0" * 64,
    "at most 131072": b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0) + b"\0" * 64,
    "more than its": b"GGUF" + struct.pack("<IQQ", 3, 1000, 0) + b"\0" * 64,
    "goes on past": GOOD[:45],
    "bytes in one text": header([struct.pack("<Q", 2**62) + b"k"], []) + b"\0" * 64,
    "array items": padded(header([key(b"k", 9, struct.pack("<IQ", 4, 2**50))], []), 64),
    "can hold": padded(header([key(b"k", 9, struct.pack("<IQ", 8, 2**20))], []), 64),
    "goes on past its end": padded(header([key(b"k", 9, struct.pack("<IQ", 12, 20))], []), 64),
    "unknown kind 99": padded(header([key(b"k", 99, b"")], []), 64),
    "unknown kind 9": padded(header([key(b"k", 9, struct.pack("<IQ", 9, 1))], []), 64),
    "UTF-8": padded(header([key(b"\xff\xfe", 4, b"\0" * 4)], []), 64),
    "comes twice": padded(header([key(b"k", 4, b"\0" * 4)] * 2, []), 64),
    "tensor 't' comes twice": padded(header([], [tensor()] * 2), 128),
    "0 dimensions": padded(header([], [tensor(sides=())]), 128),
    "5 dimensions": padded(header([], [tensor(sides=(1,) * 5)]), 128),
    "impossible shape": padded(header([], [tensor(sides=(0,))]), 128),
    "impossible shape.*Q8_0": padded(header([], [tensor(sides=(31, 32), kind=8)]), 2000),
    "encoding number 77": padded(header([], [tensor(kind=77)]), 128),
    "is not aligned": padded(header([], [tensor(offset=4)]), 256),
    "tensor t ends at byte": padded(header([], [tensor(sides=(33,))]), 128),
    "ends at byte": padded(header([], [tensor(sides=(2**63, 2**63, 2**63, 2**63))]), 128),
    "but the file has": padded(header([], [tensor(offset=2**63)]), 128),
    "alignment 0": padded(header([key(b"general.alignment", 4, b"\0" * 4)], []), 64),
    "alignment 48": padded(header([key(b"general.alignment", 4, struct.pack("<I", 48))], []), 64),
    "alignment 'x'": padded(header([key(b"general.alignment", 8, text(b"x"))], []), 64),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_header_is_refused_with_its_reason(tmp_path: Path, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD[message])
    tracemalloc.start()
    with pytest.raises(ModelUnusable, match=message):
        read_gguf_header(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_good_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(GOOD)
    head = read_gguf_header(path)
    assert head.metadata == {"k": 7}
    assert head.tensors["t"].shape == (32,)
    assert head.tensors["t"].offset + head.tensors["t"].size == len(GOOD)
    assert is_gguf(path)
    assert not is_gguf(tmp_path / "none.gguf")


def test_a_real_file_cut_anywhere_is_refused(
    tmp_path: Path, make_model: Callable, write_gguf: Callable
) -> None:
    whole = write_gguf(make_model()).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ModelUnusable, match=r"truncated: tensor \S+ ends at byte \d+ but the file"
    ):
        read_gguf_header(path)
    for length in range(0, len(whole) - 1, 997):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelUnusable, match=r"cut\.gguf"):
            read_gguf_header(path)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_flipped_bytes_never_do_worse_than_refuse(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(GOOD) - 129))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    try:
        head = read_gguf_header(path)
    except ModelUnusable:
        return
    for found in head.tensors.values():
        assert found.offset + found.size <= len(content)
