"""The API key: what programs show a server of this state directory, in a file for its owner.

Unlike an identity it is text that is copied into other programs, and may be made anew at any time
by moving the file away.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING

from diffuse_core.adapters.file_storage.disk import (
    make_directory,
    open_regular,
    sync_directory,
    unusable,
    write_beside,
)
from diffuse_core.adapters.file_storage.key_file import check_directory, check_private
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

API_KEY = "api.key"
MAX_KEY_BYTES = 512
MIN_KEY_CHARACTERS = 16

_KEY = re.compile(r"[\x21-\x7e]{16,256}")
_PREFIX = "sk-diffuse-"
"""Some programs take a key only if it begins as OpenAI's do."""
_OTHER_FILE = "move it away to get a new key"


def check_api_key(text: str, place: str) -> str:
    """The key itself, if it can be one.

    Raises:
        UsageError: it cannot; the message names its `place` and shows nothing of it.
    """
    if _KEY.fullmatch(text) is None:
        raise UsageError(
            f"{place}: an API key has {MIN_KEY_CHARACTERS} to 256 visible ASCII characters and no "
            "spaces; for a new one: openssl rand -hex 32"
        )
    return text


def load_api_key(directory: Path) -> str:
    """The key in the state directory; a new one is made when there is none.

    Raises:
        UsageError: others could read or replace it, it is damaged, or cannot be read or made.
    """
    path = directory / API_KEY
    try:
        make_directory(directory)
        check_directory(directory)
        if (found := _read(path)) is None:
            _place(path, _PREFIX + secrets.token_urlsafe(32))
            # Somebody may have been faster; what is on the disk counts.
            found = _read(path)
    except OSError as error:
        raise unusable(path, error) from error
    if found is None:
        raise UsageError(f"{path} is a link to nothing; mend it, or {_OTHER_FILE}")
    return check_api_key(found, f"{path} is damaged, {_OTHER_FILE}")


def read_api_key(path: Path) -> str:
    """The key in a file of the user's, which somebody else may have put there for them.

    Raises:
        UsageError: everybody on the machine could read it, it holds no key or cannot be read.
    """
    try:
        with open_regular(path, "give another --api-key-file") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise unusable(path, error, "give another --api-key-file") from error
    if os.name == "posix" and mode & stat.S_IRWXO:
        raise UsageError(
            f"everybody on this machine can use the key in {path} (mode {mode & 0o777:o}); run: "
            f"chmod o-rwx {path}"
        )
    return check_api_key(data.decode("latin-1").strip(), f"--api-key-file {path}")


def _read(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            check_private(path, os.fstat(file.fileno()))
            return file.read(MAX_KEY_BYTES + 1).decode("latin-1").strip()
    except FileNotFoundError:
        return None


def _place(path: Path, key: str) -> None:
    """Write the file, whole or not at all, unless there is one."""
    temporary = write_beside(path, f"{key}\n".encode())
    try:
        # A link fails where a file is, and shows it whole: two processes agree on one key.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_directory(path.parent)
