"""Headers of model files, which come from whoever put them on the hub."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from functools import cache
from pathlib import Path

from diffuse_core.adapters.models.gguf_header import read_gguf_header
from diffuse_core.adapters.models.safetensors_header import read_safetensors_header
from diffuse_core.errors import ModelUnusable

GGUF, SAFETENSORS = 0, 1
WORDS = (
    b'"dtype":"F32"',
    b'"BF16"',
    b'"data_offsets":[0,4]',
    b'"__metadata__":{}',
    b"281474976710655",
    b"-1",
    b"1e9",
    b"general.alignment",
    b"GGUF",
)


@cache
def _file() -> Path:
    # One for the process, and gone with it; in memory where that can be.
    if hasattr(os, "memfd_create"):
        return Path(f"/proc/self/fd/{os.memfd_create('model')}")
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(folder)
    return Path(folder.name) / "model"


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def target(data: bytes) -> str:
    """Every tensor that a header tells of lies within the file and over no other."""
    kind, content = data[:1] or b"\x00", data[1:]
    path = _file()
    path.write_bytes(content)
    safetensors = bool(kind[0] & 1)
    word = "safetensors" if safetensors else "gguf"
    try:
        if safetensors:
            tensors = read_safetensors_header(path).values()
            places = [(one.offset, one.size) for one in tensors]
        else:
            places = [(one.offset, one.size) for one in read_gguf_header(path).tensors.values()]
    except ModelUnusable:
        return f"{word} refused"
    for offset, size in places:
        assert 0 <= offset <= offset + size <= len(content)
    return f"{word} with {min(len(places), 3)} tensors"


def _safetensors(header: dict[str, object], data: int) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return bytes([SAFETENSORS]) + len(text).to_bytes(8, "little") + text + bytes(data)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _gguf(keys: list[bytes], tensors: list[bytes], data: int) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    content = head + b"".join(keys) + b"".join(tensors)
    return bytes([GGUF]) + content + bytes(-len(content) % 32 + data)


def _tensor(name: str, sides: tuple[int, ...], kind: int, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(sides)}Q", len(sides), *sides)
    return _text(name) + shape + struct.pack("<IQ", kind, offset)


def samples() -> dict[str, bytes]:
    """A few headers of both formats."""
    two = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    odd = {"m": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}}
    keys = [
        _text("general.alignment") + struct.pack("<II", 4, 32),
        _text("general.name") + struct.pack("<I", 8) + _text("tiny"),
        _text("tokens") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("b"),
        _text("scores") + struct.pack("<IIQ2f", 9, 6, 2, 0.5, 1.5),
        _text("flag") + struct.pack("<IB", 7, 1),
        _text("big") + struct.pack("<IQ", 10, 2**63),
    ]
    tensors = [_tensor("a.weight", (32, 2), 3, 0), _tensor("b.weight", (4,), 0, 64)]
    return {
        "safetensors": _safetensors(two, 32),
        "safetensors-other": _safetensors(odd, 16),
        "safetensors-empty": _safetensors({}, 0),
        "safetensors-deep": _safetensors({"x": json.loads("[" * 500 + "]" * 500)}, 0),
        "lfs": bytes([SAFETENSORS]) + b"version https://git-lfs.github.com/spec/v1\n",
        "gguf": _gguf(keys, tensors, 96),
        "gguf-keys": _gguf(keys, [], 0),
        "gguf-tensors": _gguf([], tensors, 96),
        "gguf-array": _gguf([_text("n") + struct.pack("<IIQ", 9, 4, 2**21)], [], 64),
    }
