"""Units on this machine: written, removed, looked at."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.cli.service.unit import MARK, paths_of
from diffuse_core.errors import DiffuseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.cli.service.unit import Scope

RUNNING = Path("/run/systemd/system")
"""Is there where systemd is the init system: sd_booted(3)."""
ASK_S = 60.0
SHOWN = ("LoadState", "ActiveState", "SubState", "StatusText", "MainPID", "NRestarts")
ENDED = ("inactive", "failed")
MAX_UNIT = 2**16


def require_systemd() -> None:
    """See that there is a systemd to install units for.

    Raises:
        UsageError: there is none.
    """
    if not RUNNING.is_dir() or shutil.which("systemctl") is None:
        raise UsageError(
            "systemd does not run this machine; `diffuse service print` shows the unit, and "
            "`diffuse service file container` how to run it in a container"
        )


def systemctl(scope: Scope, *words: str) -> list[str]:
    """A command line of systemctl."""
    return ["systemctl", *(["--user"] if scope == "user" else []), *words]


def path_of(scope: Scope, name: str) -> Path:
    """Where a unit is, or would be."""
    return paths_of(scope, Path.home()) / f"{name}.service"


def write_unit(path: Path, text: str, *, force: bool) -> bool:
    """Write a unit; False where it was there already, just so.

    Raises:
        UsageError: there is a different one, or it cannot be written.
    """
    before = read_unit(path)
    if before == text:
        return False
    if before is not None and not force:
        raise UsageError(
            f"{path} is there and says something else; give --force to write it anew, or another "
            "--name"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise _cannot("write", path, error) from error
    return True


def remove_unit(path: Path, *, force: bool) -> None:
    """Remove a unit of ours.

    Raises:
        UsageError: there is none, somebody else wrote it, or it cannot be removed.
    """
    text = read_unit(path)
    if text is None:
        raise UsageError(f"there is no {path}; is it another --name, or of --user or --system?")
    if not text.startswith(MARK) and not force:
        raise UsageError(f"`diffuse service` did not write {path}; give --force to remove it")
    try:
        path.unlink()
        # As `systemctl enable` made them; without the unit they lead nowhere.
        for wanted in path.parent.glob("*.wants"):
            link = wanted / path.name
            if link.is_symlink():
                link.unlink()
    except OSError as error:
        raise _cannot("remove", path, error) from error


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run commands of systemctl, one after the other.

    Raises:
        DiffuseError: one failed; the message has its last words.
    """
    for command in commands:
        done = _run(command)
        if done.returncode:
            words = (done.stderr or done.stdout).strip()
            raise DiffuseError(f"`{' '.join(command)}` failed: {words or done.returncode}")


def forget_failure(scope: Scope, name: str) -> None:
    """Have systemd forget that a unit failed, which it would list even once that is removed."""
    # It fails where there is nothing to forget.
    _run(systemctl(scope, "reset-failed", f"{name}.service"))


def shown(scope: Scope, name: str) -> dict[str, str]:
    """What systemd says of a unit.

    Raises:
        DiffuseError: it does not answer.
    """
    done = _run(systemctl(scope, "show", f"{name}.service", "--property", ",".join(SHOWN)))
    if done.returncode:
        raise DiffuseError(f"systemd does not answer: {done.stderr.strip()}")
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    told = {key: value for key, _, value in pairs if key in SHOWN}
    if told.get("ActiveState") in ENDED:
        # What it said last, which systemd keeps: `ready`, say, of one that was killed.
        told["StatusText"] = ""
    return told


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - systemctl, with names that were checked
            command, capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiffuseError(f"`{' '.join(command)}` failed: {error}") from error


def read_unit(path: Path) -> str | None:
    """What a unit says; None where there is none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("r", encoding="utf-8", errors="replace") as file:
            return file.read(MAX_UNIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot("read", path, error) from error


def _cannot(verb: str, path: Path, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    hint = "" if os.geteuid() == 0 else "; as root, or with --user for a unit of your own"
    return UsageError(f"cannot {verb} {path}: {reason}{hint}")
