"""Files of the app in the state directory, for nobody else's eyes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_private(path: Path, *, append: bool = False) -> int:
    """Open a file to write, begun anew unless `append`; its directory is made when there is none.

    Whatever is there is made its owner's alone. A link is not followed, and a pipe not waited for:
    where others may write into the directory, somebody may have put it there.

    Returns:
        The file's descriptor, which is the caller's to close.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, 0o600)
    return handle


def read_kept(path: Path, most: int, *, end: bool = False) -> bytes:
    """At most so many bytes of the beginning of a file, or of its `end`.

    A pipe in its place is not waited for, and of a device, which may never end, nothing is read.

    Raises:
        OSError: there is no such file, or it is none.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no file")
        if end:
            file.seek(max(0, found.st_size - most))
        return file.read(most)
