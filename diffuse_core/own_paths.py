"""Paths as people write them, and the directories of this user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from diffuse_core.errors import UsageError

APP = "diffuse"


def full_path(text: str) -> Path:
    """The whole of a path that somebody wrote, perhaps with `~` or `~NAME` for a home.

    Raises:
        UsageError: there is no such home.
    """
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"nobody here has the home of {text!r}; write the whole path") from error
    except OSError as error:
        raise UsageError(
            f"{text!r} begins in a directory that is gone; change to another"
        ) from error


def user_directory(kind: Literal["config", "state", "cache"], instead: str) -> Path:
    """Where the platform keeps what is of this user and this program.

    Args:
        kind: Of what.
        instead: What to do where there is no such place.

    Raises:
        UsageError: the user has no home, as in some containers.
    """
    import platformdirs

    find = getattr(platformdirs, f"user_{kind}_path")
    try:
        found = Path(find(APP, appauthor=False))
    except RuntimeError:
        found = None
    # Some versions say `~` of a home that is not known, which would be a name below where we are.
    if found is None or found.parts[:1] == ("~",):
        raise UsageError(f"this user has no home directory; set HOME, or {instead}")
    return found


def opened_at_once(path: str, flags: int) -> int:
    """Opens a file for `open`; a pipe in its place would be waited for, past every signal."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
