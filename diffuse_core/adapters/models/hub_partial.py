"""A file of which only some bytes are here yet, at the places they have in the whole.

A journal beside it says which. It is replaced only after the bytes it speaks of are on the disk,
so whatever is killed, and whenever, it never claims a byte that is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Annotated

import msgspec

from diffuse_core.adapters.models.hub_ranges import Range, joined, missing
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

JOURNAL = ".parts"
"""Ends the name of a journal."""
MAX_JOURNAL_BYTES = 64 * 2**20
SAVE_BYTES = 64 * 2**20
"""After so many new bytes the journal is brought up to date: what a kill can cost."""
HASH_PIECE = 2**22

_Place = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class _Journal(msgspec.Struct):
    size: _Place
    tag: str
    ranges: list[tuple[_Place, _Place]]
    proven: bool = False


class PartialFile:
    """The bytes here of one file. `tag` is the hub's name for its content (an ETag)."""

    def __init__(self, path: Path) -> None:
        """Read the journal, if there is a good one."""
        self.path = path
        self._journal_path = path.with_name(path.name + JOURNAL)
        self._fresh: list[Range] = []
        self._unsaved = 0
        self._journal = self._read()

    @property
    def known(self) -> bool:
        """Whether size and tag are known, from an earlier time or by `promise`."""
        return self._journal is not None

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._known().size

    @property
    def tag(self) -> str:
        """The hub's name for the content."""
        return self._known().tag

    @property
    def proven(self) -> bool:
        """Whether the whole file was here and its SHA-256 was right."""
        return self._known().proven

    def promise(self, size: int, tag: str) -> None:
        """Take over what the hub says of the file.

        Raises:
            ModelUnusable: it said otherwise before, of the same commit.
        """
        if self._journal is None:
            self._journal = _Journal(size, tag, [])
        elif (self._journal.size, self._journal.tag) != (size, tag):
            raise ModelUnusable(
                f"the hub changed {self.path.name} under the same commit: it was "
                f"{self._journal.size} bytes ({self._journal.tag[:12]}), now it is {size} "
                f"({tag[:12]}); delete {self.path.parent} to fetch it anew"
            )

    def missing(self, wanted: Iterable[Range]) -> list[Range]:
        """What of `wanted` is not here, in order."""
        return missing(wanted, joined([*self._known().ranges, *self._fresh]))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[int, bytes], None]]:
        """Write through the function given: position, bytes. Saved when this ends, however.

        Only one at a time, whoever calls: hold a lock.

        Raises:
            OSError: the disk is full, or broken.
        """
        journal = self._known()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != journal.size:
                journal.ranges = []
                file.truncate(0)
                file.truncate(journal.size)

            def write(start: int, data: bytes) -> None:
                file.seek(start)
                left = memoryview(data)
                while left:
                    left = left[file.write(left) or 0 :]
                self._fresh.append((start, start + len(data)))
                self._unsaved += len(data)
                if self._unsaved >= SAVE_BYTES:
                    self._save(file.fileno())

            try:
                yield write
            finally:
                self._save(file.fileno())

    def prove(self, progress: Callable[[], None]) -> bool:
        """Whether the file, which is whole, has the SHA-256 that is its tag; remembered."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while piece := file.read(HASH_PIECE):
                digest.update(piece)
                progress()
        journal = self._known()
        journal.proven = digest.hexdigest() == journal.tag
        if journal.proven:
            self._write_journal()
        return journal.proven

    def discard(self) -> None:
        """Forget the file."""
        self._journal_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self._journal = None

    def _known(self) -> _Journal:
        if self._journal is None:
            raise RuntimeError("nothing is known of the file yet")
        return self._journal

    def _read(self) -> _Journal | None:
        try:
            with self._journal_path.open("rb") as file:
                found = msgspec.json.decode(file.read(MAX_JOURNAL_BYTES), type=_Journal)
            whole = self.path.lstat().st_size == found.size
        except (OSError, msgspec.DecodeError, ValueError):
            return None
        found.ranges = joined(found.ranges)
        in_file = not found.ranges or found.ranges[-1][1] <= found.size
        return found if whole and in_file else None

    def _save(self, descriptor: int) -> None:
        os.fsync(descriptor)
        journal = self._known()
        journal.ranges = joined([*journal.ranges, *self._fresh])
        self._fresh = []
        self._unsaved = 0
        self._write_journal()

    def _write_journal(self) -> None:
        replace_file(self._journal_path, msgspec.json.encode(self._known()))


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` there so that after a crash there is the old file or the new one, whole.

    Raises:
        OSError: the disk is full, or broken.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
