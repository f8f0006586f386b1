"""Which apps have the archive open: each holds a lock on a file of its own until it ends.

The system lets go of a lock when its process ends, however it ends, so what an app left half done
is told from what a running one is at.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class AppMark:
    """This app's mark beside the archive's file. Take it, and look for others, one at a time."""

    def __init__(self, archive: Path) -> None:
        self.token = secrets.token_hex(8)
        self._archive = archive
        self._path = self._of(self.token)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self._handle = os.open(self._path, flags, 0o600)
        _try_lock(self._handle)

    def _of(self, token: str) -> Path:
        return self._archive.with_name(f"{self._archive.name}.app-{token}")

    def running(self) -> set[str]:
        """The tokens of all apps that run, this one's too; marks of others are cleared away."""
        tokens = {self.token}
        for path in self._archive.parent.glob(f"{self._archive.name}.app-*"):
            token = path.name.rpartition("-")[2]
            if token != self.token and not _clear_if_left(path):
                tokens.add(token)
        return tokens

    def release(self) -> None:
        """This app is done with the archive."""
        with suppress(OSError):
            if os.name != "posix":
                os.close(self._handle)  # There an open file cannot be removed.
            self._path.unlink(missing_ok=True)
            if os.name == "posix":
                os.close(self._handle)


def _clear_if_left(path: Path) -> bool:
    """Remove the mark when no process holds it; whether that was so."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        left = _try_lock(handle)
    finally:
        os.close(handle)
    if left:
        path.unlink(missing_ok=True)
    return left
