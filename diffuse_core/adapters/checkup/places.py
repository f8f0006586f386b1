"""Directories: how much fits into them, whether they can be written, and what they lie on."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

TRIAL_BYTES = 64 * 1024
MAX_WALK = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class PlaceFacts:
    """A directory, or the next one above it that is there (`exists` tells which).

    `free` bytes, `inodes` left as a part 0..1 (None where the file system counts none).
    `problem` is why nothing can be written there, empty where it can; `full` that it is for space.
    """

    path: Path
    exists: bool
    free: int
    inodes: float | None
    filesystem: str
    problem: str = ""
    full: bool = False


def place_facts(path: Path) -> PlaceFacts:
    """Look at a directory; a file of a few KiB is written into it and removed again.

    Raises:
        OSError: not even the directories above it can be looked at.
    """
    there = _nearest(path)
    trouble, full = _trial(there) if there == path else (_access(there), False)
    return PlaceFacts(
        path=path,
        exists=there == path,
        free=free_bytes(there),
        inodes=_inodes(there),
        filesystem=filesystem(there),
        problem=trouble,
        full=full,
    )


def free_bytes(path: Path) -> int:
    """What can be written to a directory, which may not be there yet.

    Raises:
        OSError: not even the directories above it can be looked at.
    """
    return shutil.disk_usage(_nearest(path)).free


def _nearest(path: Path) -> Path:
    for one in (path, *path.parents):
        if one.is_dir():
            return one
        if one.exists():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(one))
    return path


def _access(directory: Path) -> str:
    allowed = os.access(directory, os.W_OK | os.X_OK)
    return "" if allowed else f"{directory} may not be written by this user"


def _trial(directory: Path) -> tuple[str, bool]:
    """What keeps a small file from being written; whether it is that there is no room."""
    trial = directory / f".doctor.{secrets.token_hex(8)}.tmp"
    try:
        with trial.open("xb") as file:
            file.write(bytes(TRIAL_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return (error.strerror or str(error)).lower(), error.errno in _FULL
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
    return "", False


def _inodes(directory: Path) -> float | None:
    if not hasattr(os, "statvfs"):
        return None
    found = os.statvfs(directory)
    return found.f_favail / found.f_files if found.f_files else None


def filesystem(directory: Path) -> str:
    """The type of the file system that a directory lies on, e.g. `ext4`; empty if unknown."""
    real = directory.resolve()
    best, kind = -1, ""
    with contextlib.suppress(OSError, psutil.Error):
        for part in psutil.disk_partitions(all=True):
            mount = Path(part.mountpoint)
            if real.is_relative_to(mount) and len(mount.parts) >= best:
                best, kind = len(mount.parts), part.fstype
    return kind


def files_below(directory: Path, suffixes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """Files whose names end so, and their sizes; at most MAX_WALK entries are looked at."""
    found: list[tuple[Path, int]] = []
    seen = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            seen += 1
            if seen > MAX_WALK:
                return found
            if name.endswith(suffixes):
                with contextlib.suppress(OSError):
                    path = Path(folder) / name
                    found.append((path, path.lstat().st_size))
    return found
