"""Looking for bytes in the memory of a running process, on Linux."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 2**24


def unreadable(pid: int) -> str:
    """Why the memory of a process cannot be read; empty when it can."""
    if sys.platform != "linux":
        return "memory of processes is read on Linux only"
    try:
        with Path(f"/proc/{pid}/mem").open("rb"):
            return ""
    except OSError as error:
        return f"the memory of other processes cannot be read here: {error}"


def found_in_memory(pid: int, needles: dict[str, bytes]) -> set[str]:
    """The names of those that are anywhere in what a process may write to."""
    found: set[str] = set()
    longest = max(map(len, needles.values()))
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, end in _regions(pid):
            rest = b""
            for at in range(start, end, CHUNK_BYTES):
                try:
                    memory.seek(at)
                    data = rest + memory.read(min(CHUNK_BYTES, end - at))
                except OSError:
                    # It was given back meanwhile.
                    break
                found |= {name for name, needle in needles.items() if needle in data}
                rest = data[-longest:]
    return found


def _regions(pid: int) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, rights, *_ = line.split()
        if rights.startswith("rw"):
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)
