"""The lock that keeps a state directory to one node."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from typing import TYPE_CHECKING

from diffuse_core.adapters.file_storage.disk import (
    NONBLOCK,
    PRIVATE_FILE,
    check_regular,
    make_directory,
    open_regular,
    unusable,
)
from diffuse_core.errors import UsageError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK_NAME = "node.lock"
MAX_PID_CHARS = 32


def lock_holder(directory: Path) -> int | None:
    """The process id of the node that holds the lock; None where none does, or none can tell."""
    if sys.platform == "win32":
        return None
    try:
        with open_regular(directory / LOCK_NAME) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(MAX_PID_CHARS))
    except (OSError, UsageError, ValueError):
        pass
    return None


class StateLock:
    """Keeps a state directory to one node; the system lets go of it when the process dies.

    A context manager. On Windows, which has no `flock`, it does nothing.

    Args:
        directory: the state directory.
        step: what to do when another node holds it.
    """

    def __init__(self, directory: Path, step: str | None = None) -> None:
        self._directory = directory
        self._step = step or (
            f"stop it (`diffuse stop --state-dir {shlex.quote(str(directory))}`), or give this "
            "one its own --state-dir"
        )
        self._file = -1

    def __enter__(self) -> StateLock:
        """Take the lock.

        Raises:
            UsageError: another node holds it, or the directory cannot be written.
        """
        path = self._directory / LOCK_NAME
        try:
            make_directory(self._directory)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | NONBLOCK, PRIVATE_FILE)
        except OSError as error:
            raise unusable(path, error) from error
        try:
            check_regular(path, self._file)
        except UsageError:
            os.close(self._file)
            raise
        try:
            self._take()
        except OSError as error:
            holder = os.read(self._file, MAX_PID_CHARS).decode("ascii", "replace").strip()
            os.close(self._file)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise unusable(path, error) from error
            if not holder:
                # Whoever took it says who it is in the same moment.
                raise UsageError(
                    f"another command uses the state directory {self._directory} at this very "
                    "moment; try again"
                ) from error
            raise UsageError(
                f"another process (pid {holder}) uses the state directory {self._directory}; "
                f"where it is no node, try again; where it is one, {self._step}"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go. The file stays: removing it would race with the next node."""
        os.close(self._file)

    def _take(self) -> None:
        if sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())
