"""The state directory: small blobs, secret keys, and the lock that keeps it to one node."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from typing import TYPE_CHECKING, BinaryIO

from diffuse_core.domain.identity import Identity
from diffuse_core.errors import UsageError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

MAX_BLOB_BYTES = 128 * 2**20
MAX_NAME_CHARS = 128
LOCK_NAME = "node.lock"

_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700
_KEY_CHARS = 64
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


class FileStorage:
    """Implements ports.Storage over one directory, which is made when first written to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        """The blob, or None.

        Raises:
            UsageError: it cannot be read, is no regular file, or is larger than MAX_BLOB_BYTES.
        """
        path = self._path(name)
        try:
            with _open(path) as file:
                data = file.read(MAX_BLOB_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, error) from error
        if len(data) > MAX_BLOB_BYTES:
            raise UsageError(f"{path} is larger than anything Diffuse stores; move it away")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replace the blob: after a crash either the old or the new one is there, whole.

        Raises:
            UsageError: the directory or the disk does not let us.
        """
        path = self._path(name)
        try:
            _make_directory(self._directory)
            temporary = _write_beside(path, data)
            try:
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            _sync_directory(self._directory)
        except OSError as error:
            raise _unusable(path, error) from error

    def delete(self, name: str) -> None:
        """Remove it if there. Raises UsageError when that is not allowed."""
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(path, error) from error

    def _path(self, name: str) -> Path:
        plain = 0 < len(name) <= MAX_NAME_CHARS and not name.startswith(".")
        if not plain or not name.isprintable() or any(c in '/\\:*?"<>|' for c in name):
            raise ValueError(f"{name!r} is no plain file name")
        return self._directory / name


def load_identity(directory: Path, name: str) -> Identity:
    """The identity whose seed the key file holds; a new one is made when there is no file.

    The file has the 32-byte seed as 64 hexadecimal digits. It is never overwritten.

    Raises:
        UsageError: others could read the file, it is damaged or no regular file, or it cannot be
            read or made.
    """
    path = directory / name
    try:
        if (text := _read_key(path)) is None:
            _make_directory(directory)
            _create_key(path)
            text = _read_key(path) or ""
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return Identity(bytes.fromhex(text))
    except ValueError as error:
        raise UsageError(
            f"the key file {path} is damaged; restore it, or move it away to get a new identity"
        ) from error


class StateLock:
    """Keeps a state directory to one node; the system lets go of it when the process dies.

    A context manager. On Windows, which has no `flock`, it does nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = -1

    def __enter__(self) -> StateLock:
        """Take the lock.

        Raises:
            UsageError: another node holds it, or the directory cannot be written.
        """
        path = self._directory / LOCK_NAME
        try:
            _make_directory(self._directory)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | _NONBLOCK, _PRIVATE_FILE)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            _check_regular(path, self._file)
        except UsageError:
            os.close(self._file)
            raise
        try:
            self._take()
        except OSError as error:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise _unusable(path, error) from error
            raise UsageError(
                f"another node (pid {holder or 'unknown'}) already runs with the state directory "
                f"{self._directory}; stop it, or give this one its own --state-dir"
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


def _open(path: Path) -> BinaryIO:
    """Open to read; to open or read a pipe or a device could wait for ever, past every signal.

    Symbolic links are followed: secrets are often mounted by them.
    """
    descriptor = os.open(path, os.O_RDONLY | _NONBLOCK | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(path, descriptor)
        return open(descriptor, "rb")  # noqa: PTH123 - it is a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(path: Path, descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UsageError(
            f"cannot use {path}: it is no regular file; move it away, or give another --state-dir"
        )


def _read_key(path: Path) -> str | None:
    try:
        with _open(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(
                    f"the key file {path} can be used by others (mode {mode & 0o777:o}); run: "
                    f"chmod 600 {path}"
                )
            return file.read(_KEY_CHARS + 3).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _create_key(path: Path) -> None:
    seed = secrets.token_bytes(_KEY_CHARS // 2)
    temporary = _write_beside(path, f"{seed.hex()}\n".encode())
    try:
        # A link fails where a file is, and shows it whole: two processes agree on one key.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            _sync_directory(path.parent)
    finally:
        temporary.unlink()


def _make_directory(directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)


def _write_beside(path: Path, data: bytes) -> Path:
    """A new private file next to `path` that is on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is a descriptor
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        step = "free some space, or give another --state-dir"
    else:
        step = "mend that, or give another --state-dir"
    return UsageError(f"cannot use {path}: {reason}; {step}")
