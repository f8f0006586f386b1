"""Which files the beginning of a path may mean."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

MOST_LOOKED_AT = 2000
MOST_GIVEN = 50
_MODEL_FILES = (".gguf",)


def completions(text: str) -> tuple[str, ...]:
    """Directories, and files that may be models, whose path begins with `text`; reads the disk.

    As typed: what begins with a tilde stays so. Directories end with a slash. Hidden ones are
    given when the name begins with a dot.
    """
    head, _, name = text.rpartition("/")
    parent = text[: len(head) + 1] if "/" in text else ""
    try:
        with os.scandir(Path(parent or ".").expanduser()) as entries:
            found = [
                (entry.name, _is_directory(entry))
                for entry in itertools.islice(entries, MOST_LOOKED_AT)
                if entry.name.startswith(name) and (name or not entry.name.startswith("."))
            ]
    except (OSError, RuntimeError, ValueError):
        return ()
    given = [
        f"{parent}{name}/" if directory else f"{parent}{name}"
        for name, directory in sorted(found)
        if directory or name.lower().endswith(_MODEL_FILES)
    ]
    return tuple(given[:MOST_GIVEN])


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
