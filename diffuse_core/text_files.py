"""Text files that a user names: read to be attached to a question, written as exports."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path
from typing import NamedTuple

from diffuse_core.errors import UsageError
from diffuse_core.own_paths import full_path

MAX_SAME_NAME = 1000
"""Files of one name that are counted up before giving up."""
_LOOKED_AT = 8192
"""Bytes at the beginning by which text is told from anything else."""
_ODD = 0.1
"""Share of unreadable bytes there from which on it is no text."""


class TextFile(NamedTuple):
    """A file's name without its directory, its text, and what is to be said of the reading."""

    name: str
    text: str
    note: str = ""


def read_text_file(path: str, limit: int) -> TextFile:
    """A text file in UTF-8, or UTF-16 with its mark; line ends become plain ones.

    Args:
        path: As a user types it: `~` and quotes around it are understood.
        limit: Characters at most.

    Raises:
        UsageError: there is no such file, it is no text, too long, or no file at all.
    """
    file = _typed(path)
    data = _read(file, 4 * limit)
    if data is None:
        raise UsageError(f"{file} is too large: at most {limit:,} characters can be attached")
    text, note = _decode(file, data)
    if len(text) > limit:
        raise UsageError(
            f"{file} has {len(text):,} characters: at most {limit:,} can be attached; cut it"
        )
    return TextFile(file.name, text.replace("\r\n", "\n"), note)


def read_bytes(path: str, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes.

    Raises:
        UsageError: there is none, or it is larger.
    """
    file = _typed(path)
    data = _read(file, limit)
    if data is None:
        raise UsageError(f"{file} is too large: at most {limit:,} bytes are read")
    return data


def write_export(typed: str, name: str, ending: str, text: str) -> Path:
    """Write a new file, readable by its owner only; one that exists is never touched.

    Args:
        typed: What the user typed: nothing for the current directory, a directory, or a file.
        name: The file's name without its ending, used where a directory was typed.
        ending: With its dot.
        text: What is written, as UTF-8.

    Returns:
        Where it was written: `-2`, `-3` and so on are added where the name is taken.

    Raises:
        UsageError: it cannot be written there; nothing is left behind.
    """
    target = _typed(typed) if typed.strip() else Path.cwd()
    if _is_folder(target) or typed.rstrip().endswith(("/", os.sep)):
        folder, stem = target, name
    else:
        folder, stem = target.parent, target.stem
        ending = target.suffix or ending
    try:
        for number in range(1, MAX_SAME_NAME):
            count = "" if number == 1 else f"-{number}"
            path = folder / f"{stem}{count}{ending}"
            try:
                _write_new(path, text.encode("utf-8", "replace"))
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise UsageError(f"not written: {folder}: {_why(error)}; type another path") from error
    raise UsageError(f"not written: there are {MAX_SAME_NAME} files of that name; type another")


def _typed(path: str) -> Path:
    plain = path.strip()
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "\"'":
        plain = plain[1:-1]
    if not plain or "\0" in plain or not _encodes(plain):
        raise UsageError("type the path of a file")
    return full_path(plain)


def _encodes(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _read(file: Path, most: int) -> bytes | None:
    """All bytes of a regular file, None when there are more than `most`.

    Opened without waiting, and looked at once it is open: a pipe would wait for ever, a device
    may never end.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        _refuse_odd(file, file.stat())
        with os.fdopen(os.open(file, flags | getattr(os, "O_BINARY", 0)), "rb") as source:
            _refuse_odd(file, os.fstat(source.fileno()))
            data = source.read(most + 1)
    except OSError as error:
        raise UsageError(f"{file}: {_why(error)}; check the path") from error
    return None if len(data) > most else data


def _refuse_odd(file: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{file} is a directory; type the path of a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{file} is no regular file (a pipe or a device); only files are read")


def _decode(file: Path, data: bytes) -> tuple[str, str]:
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in data[:_LOOKED_AT]:
        raise UsageError(f"{file} is no text; only text files can be attached")
    try:
        return data.decode(encoding), ""
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    odd = text.count("\N{REPLACEMENT CHARACTER}")
    if odd > _ODD * len(text):
        raise UsageError(f"{file} is no text in UTF-8; convert it, e.g. with iconv")
    return text, f"{file.name} is not all UTF-8: {odd} characters were replaced"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # A name that is too long: writing there tells so.


def _write_new(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as target:
            target.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
