"""Small disks that fill up, and files of weights in which bytes are changed."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK_BYTES = 2 * 2**20
FILLER = "filler"
BLOCK = 4096
EVERY = 4
"""One block of so many is damaged, as by a disk that is dying. Less would not be told apart: a
model's fingerprint covers samples of its tensors (see `content_digest`)."""


@contextlib.contextmanager
def small_disk(place: Path, size: int = DISK_BYTES) -> Iterator[None]:
    """A file system of `size` bytes at a directory, whose files are on it meanwhile.

    Needs root. What is there at the end is in the directory again afterwards, as far as there is
    room for it: there is always more.
    """
    kept = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, kept)
    kind = ("-t", "tmpfs", "-o", f"size={size},mode=700")
    subprocess.run(["mount", *kind, "chaos", place], check=True, capture_output=True)
    try:
        shutil.copytree(kept, place, dirs_exist_ok=True)
        shutil.rmtree(kept)
        yield
        (place / FILLER).unlink(missing_ok=True)
        shutil.copytree(place, kept)
    finally:
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        if kept.exists():
            shutil.copytree(kept, place, dirs_exist_ok=True)
            shutil.rmtree(kept)


def fill(place: Path) -> None:
    """Leave no byte free on the file system there."""
    with (place / FILLER).open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            # A write that finds only some room writes that much, the next one fails.
            file.write(bytes(BLOCK))


def free(place: Path) -> None:
    """Give the room back."""
    (place / FILLER).unlink(missing_ok=True)


def damage(directory: Path, salt: int) -> int:
    """Change bytes in the tensors of a model's files; how many."""
    rng = random.Random(salt)
    changed = 0
    for path in sorted(directory.glob("*.safetensors")):
        data = bytearray(path.read_bytes())
        (header,) = struct.unpack("<Q", data[:8])
        start = 8 + header
        # Else another part would be damaged than that which is meant.
        assert json.loads(data[8:start]), path
        for block in range(start, len(data), BLOCK * EVERY):
            place = block + rng.randrange(min(BLOCK, len(data) - block))
            for at in range(place, min(place + BLOCK, len(data))):
                data[at] ^= rng.randrange(1, 256)
                changed += 1
        path.write_bytes(data)
    return changed
