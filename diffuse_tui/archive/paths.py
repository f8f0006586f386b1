"""Which files there are, for completing a path that is being typed."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

MAX_LOOKED_AT = 5_000
"""Entries of one directory that are looked at."""


def matching_paths(typed: str, limit: int = 50) -> tuple[str, ...]:
    """Paths that begin as `typed` does, written as it is; directories end with a slash.

    A directory that cannot be read has none. Names that begin with a dot only when a dot is typed,
    and none with control characters.
    """
    before, _, start = typed.rpartition("/")
    folder = before + "/" if "/" in typed else ""
    try:
        with os.scandir(Path(folder).expanduser() if folder else Path()) as entries:
            found = [
                entry.name + ("/" if entry.is_dir() else "")
                for entry in itertools.islice(entries, MAX_LOOKED_AT)
                if entry.name.startswith(start)
                and entry.name.isprintable()
                and (start or not entry.name.startswith("."))
            ]
    except (OSError, ValueError, RuntimeError):
        return ()
    return tuple(folder + name for name in sorted(found)[:limit])
