"""A lock between processes that the system releases when its holder dies."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO

POLL_S = 0.2

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[float], None]) -> Iterator[None]:
    """Hold the lock of `path`; `waiting(0.0)` is called while another process has it.

    The file stays: removing it would let two processes lock two files of one name.
    """
    with path.open("ab") as file:
        while not _try_lock(file):
            waiting(0.0)
            time.sleep(POLL_S)
        yield
