"""What the parts of the state directory share: opening without waiting, and writing for good."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING, BinaryIO

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
OTHER_PLACE = "give another --state-dir"
NONBLOCK = getattr(os, "O_NONBLOCK", 0)

_BINARY = getattr(os, "O_BINARY", 0)


def open_regular(path: Path, step: str = f"move it away, or {OTHER_PLACE}") -> BinaryIO:
    """Open to read; to open or read a pipe or a device could wait for ever, past every signal.

    Symbolic links are followed: secrets are often mounted by them.

    Raises:
        OSError: it cannot be opened.
        UsageError: it is no regular file; `step` is what the message tells to do then.
    """
    descriptor = os.open(path, os.O_RDONLY | NONBLOCK | _BINARY)
    try:
        check_regular(path, descriptor, step)
        return open(descriptor, "rb")  # noqa: PTH123 - it is a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(
    path: Path, descriptor: int, step: str = f"move it away, or {OTHER_PLACE}"
) -> None:
    """Raise UsageError when what is open is a pipe, a device or a directory."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise UsageError(f"cannot use {path}: it is {kind_text(mode)}, no file; {step}")


def kind_text(mode: int) -> str:
    """What something of this mode is, in words."""
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "something else"


def make_directory(directory: Path) -> None:
    """Make it if it is not there, for its owner only."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def write_new(path: Path, data: bytes) -> None:
    """Make a private file that is on the disk when this returns, and not there when it fails.

    Raises:
        OSError: it is there already (FileExistsError), or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        try:
            if hasattr(os, "fchmod"):
                # A umask may have taken what its owner needs.
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, PRIVATE_FILE)
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def write_beside(path: Path, data: bytes) -> Path:
    """A new private file next to `path` that is on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    write_new(temporary, data)
    return temporary


def sync_directory(directory: Path) -> None:
    """See to it that names made or replaced in it outlive a crash."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unusable(path: Path, error: OSError, step: str = OTHER_PLACE) -> UsageError:
    """What to tell of a failed system call; `step` is what to do but for mending the cause."""
    reason = (error.strerror or str(error)).lower()
    first = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "mend that"
    return UsageError(f"cannot use {path}: {reason}; {first}, or {step}")
