"""Copies of key files outside of the state directory: backups, and the way to another machine."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

from diffuse_core.adapters.file_storage.disk import (
    open_regular,
    sync_directory,
    unusable,
    write_new,
)
from diffuse_core.adapters.file_storage.key_file import MAX_KEY_BYTES, key_bytes, parse_key
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.identity import Identity

_STEP = "give another FILE"


def export_key(path: Path, identity: Identity) -> bool:
    """Write a copy of the key to a new file; whether it is the user's alone.

    It is not where the file system knows no owners, as on many memory sticks.

    Raises:
        UsageError: there is something of that name, or it cannot be written.
    """
    try:
        write_new(path, key_bytes(identity))
        sync_directory(path.parent)
        return private(path.stat())
    except FileExistsError as error:
        raise UsageError(f"{path} is there already, and not overwritten; {_STEP}") from error
    except OSError as error:
        raise unusable(path, error, _STEP) from error


def read_copy(path: Path, piped: str) -> tuple[Identity, str]:
    """The identity of a copy, and a warning: empty when nobody else can read the file.

    Args:
        path: the file.
        piped: the command that reads a copy from a pipe instead.

    Raises:
        UsageError: it is no regular file, no sound key, or cannot be read.
    """
    try:
        with open_regular(path, _instead(path, piped)) as file:
            found = os.fstat(file.fileno())
            data = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise unusable(path, error, _STEP) from error
    warning = ""
    if not private(found):
        warning = (
            f"others can read {path} (mode {found.st_mode & 0o777:o}); run: chmod 600 "
            f"{shlex.quote(str(path))}, or remove it where that does not help"
        )
    return parse_copy(data, str(path)), warning


def _instead(path: Path, piped: str) -> str:
    """What to do where `path` is no file."""
    return f"pipe into `{piped}`, or {_STEP}" if path.is_fifo() else _STEP


def parse_copy(data: bytes, place: str) -> Identity:
    """The identity of a copy's content.

    Raises:
        UsageError: it is no sound key.
    """
    if not data:
        raise UsageError(f"{place} holds no key: it is empty; make the copy again")
    try:
        return parse_key(data)
    except ValueError as error:
        raise UsageError(
            f"{place} holds no key, or a damaged one: a file that `diffuse identity export` wrote "
            "has two lines of 64 hexadecimal digits; make the copy again"
        ) from error


def private(found: os.stat_result) -> bool:
    """Whether nobody but its owner can read a file."""
    return os.name != "posix" or not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
