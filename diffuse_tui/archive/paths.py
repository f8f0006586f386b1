"""Which files there are, for completing a path that is being typed."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

MAX_LOOKED_AT = 5_000
"""Entries of one directory that are looked at."""


def matching_paths(
    typed: str, limit: int = 50, endings: tuple[str, ...] = ("",)
) -> tuple[str, ...]:
    """Paths that begin as `typed` does, written as it is; directories end with a slash.

    Of files only those with one of the `endings`, in any case. A directory that cannot be read has
    none. Names that begin with a dot only when a dot is typed, and none with control characters.
    """
    before, _, start = typed.rpartition("/")
    folder = before + "/" if "/" in typed else ""
    try:
        with os.scandir(Path(folder).expanduser() if folder else Path()) as entries:
            found = [
                entry.name + ("/" if _is_directory(entry) else "")
                for entry in itertools.islice(entries, MAX_LOOKED_AT)
                if entry.name.startswith(start)
                and entry.name.isprintable()
                and (start or not entry.name.startswith("."))
            ]
    except (OSError, ValueError, RuntimeError):
        return ()
    wanted = (name for name in sorted(found) if name.lower().endswith(("/", *endings)))
    return tuple(folder + name for name in itertools.islice(wanted, limit))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # A link that leads to itself, say: the others are listed all the same.
