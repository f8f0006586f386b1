"""Small blobs in the state directory, each replaced as a whole."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from diffuse_core.adapters.file_storage.disk import (
    make_directory,
    open_regular,
    sync_directory,
    unusable,
    write_beside,
)
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BLOB_BYTES = 128 * 2**20
MAX_NAME_CHARS = 128


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
            with open_regular(path) as file:
                data = file.read(MAX_BLOB_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(path, error) from error
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
            make_directory(self._directory)
            temporary = write_beside(path, data)
            try:
                temporary.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            sync_directory(self._directory)
        except OSError as error:
            raise unusable(path, error) from error

    def delete(self, name: str) -> None:
        """Remove it if there. Raises UsageError when that is not allowed."""
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(path, error) from error

    def _path(self, name: str) -> Path:
        plain = 0 < len(name) <= MAX_NAME_CHARS and not name.startswith(".")
        if not plain or not name.isprintable() or any(c in '/\\:*?"<>|' for c in name):
            raise ValueError(f"{name!r} is no plain file name")
        return self._directory / name
