"""What is on this machine of one commit of a model on the hub, and bringing more of it."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.file_lock import locked
from diffuse_core.adapters.models.hub_client import HubClient, Listing, RemoteFile
from diffuse_core.adapters.models.hub_parallel import gathered
from diffuse_core.adapters.models.hub_partial import PartialFile, replace_file
from diffuse_core.adapters.models.hub_ranges import Range, cut, joined, size_of
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from diffuse_core.model_ports import Progress

    Wanted = Callable[[int], list[Range]]
    """From a file's size to the ranges of it that are wanted."""

SPARE_BYTES = 2**22
"""Room for the journals beside the bytes."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
LOCK = "lock"


def free_space(directory: Path) -> int:
    """Bytes that can be written there."""
    return shutil.disk_usage(directory).free


class Mirror:
    """A directory with the files of a commit, as far as they are here."""

    def __init__(
        self,
        directory: Path,
        client: HubClient,
        listing: Listing,
        free: Callable[[Path], int] = free_space,
    ) -> None:
        """Make the directory.

        Raises:
            ModelUnusable: it cannot be made.
        """
        self.directory = directory
        self._client = client
        self._listing = listing
        self._free = free
        self._remotes: dict[str, RemoteFile] = {}
        with self._storing():
            directory.mkdir(parents=True, exist_ok=True)

    def bring(
        self,
        wanted: Mapping[str, Wanted],
        progress: Progress,
        threads: int,
        gap: int | None = None,
    ) -> None:
        """Make the wanted ranges of files be here; what is here already is not fetched again.

        `progress` is told the fraction of them that is here; what it raises breaks this off, and
        what came so far is kept. Several processes may want parts of one model: they take turns.

        Raises:
            ModelUnknown: the hub cannot be reached, or denies access.
            ModelUnusable: what comes is not what was promised, or it cannot be stored.
        """
        if any(self._lacks(self._partial(file), ranges) for file, ranges in wanted.items()):
            with self._storing(), locked(self.directory / LOCK, progress):
                self._bring(
                    wanted, progress, threads, self._client.pace.gap if gap is None else gap
                )
        progress(1.0)

    def _partial(self, file: str) -> PartialFile:
        return PartialFile(self.directory / file)

    @staticmethod
    def _lacks(partial_file: PartialFile, ranges: Wanted) -> bool:
        if not partial_file.known:
            return True
        return bool(partial_file.missing(ranges(partial_file.size)))

    def _bring(
        self,
        wanted: Mapping[str, Wanted],
        progress: Progress,
        threads: int,
        gap: int,
    ) -> None:
        # Read anew: another process may have brought some while we waited for our turn.
        parts = {file: self._partial(file) for file in wanted}
        lacking = [file for file in wanted if self._lacks(parts[file], wanted[file])]
        remotes = self._locate(lacking, progress, threads)
        for file, remote in remotes.items():
            parts[file].promise(remote.size, remote.tag)
        needs = {file: parts[file].missing(wanted[file](parts[file].size)) for file in remotes}
        asked = {file: joined(ranges, gap) for file, ranges in needs.items()}
        everything = sum(size_of(joined(wanted[f](parts[f].size))) for f in wanted)
        tally = _Tally(everything, sum(map(size_of, needs.values())), asked, progress)
        self._check_room(tally.left)
        jobs = [
            partial(self._read, remotes[file], start, end)
            for file, ranges in asked.items()
            for start, end in cut(ranges, self._client.pace.part)
        ]
        with _Writers(parts) as writers:
            for file, start, data in gathered(jobs, threads, tally.tell):
                writers.write(file, start, data)
                if tally.count(file, len(data)):
                    writers.close(file)
        for file in remotes:
            if not asked[file]:
                # An empty file is one, too.
                with parts[file].opened():
                    pass
            self._prove(parts[file], tally)

    def _locate(self, files: list[str], progress: Progress, threads: int) -> dict[str, RemoteFile]:
        def ask(file: str, stopped: threading.Event) -> Generator[RemoteFile, None, None]:
            yield self._client.locate(self._listing.commit, file, stopped)

        jobs = [partial(ask, file) for file in files if file not in self._remotes]
        for remote in gathered(jobs, threads, lambda: progress(0.0)):
            self._remotes[remote.name] = remote
        return {file: self._remotes[file] for file in files}

    def _read(
        self, remote: RemoteFile, start: int, end: int, stopped: threading.Event
    ) -> Generator[tuple[str, int, bytes], None, None]:
        pieces = self._client.read(self._listing.commit, remote, start, end, stopped)
        with contextlib.closing(pieces):
            for at, data in pieces:
                yield remote.name, at, data

    def _prove(self, part: PartialFile, tally: _Tally) -> None:
        """A file that is whole now and named by its SHA-256 is checked against it, once."""
        if part.proven or _SHA256.fullmatch(part.tag) is None or part.missing([(0, part.size)]):
            return
        if not part.prove(tally.tell):
            part.discard()
            raise ModelUnusable(
                f"{part.path.name} of {self._listing.repo} arrived damaged (its SHA-256 is wrong) "
                "and was deleted; try again"
            )

    def _check_room(self, needed: int) -> None:
        if needed and self._free(self.directory) < needed + SPARE_BYTES:
            raise self._full(needed)

    def _full(self, needed: int) -> ModelUnusable:
        there = self._free(self.directory)
        return ModelUnusable(
            f"{self._listing.repo} needs {needed / 2**20:.1f} MiB more in {self.directory}, where "
            f"{there / 2**20:.1f} MiB are free; make room, or set DIFFUSE_CACHE_DIR to a "
            "directory on another disk"
        )

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.ENOSPC:
                why = f"the disk is full, with {self._free(self.directory) / 2**20:.0f} MiB free"
            raise ModelUnusable(
                f"{self._listing.repo} cannot be stored in {self.directory}: {why}; mend that, or "
                "set DIFFUSE_CACHE_DIR to another directory"
            ) from error


class _Tally:
    """How far a transfer is."""

    def __init__(
        self,
        everything: int,
        lacking: int,
        asked: Mapping[str, list[Range]],
        progress: Progress,
    ) -> None:
        self._files = {file: size_of(ranges) for file, ranges in asked.items()}
        self._whole = self.left = sum(self._files.values())
        self._share = lacking / everything if everything else 0.0
        self._progress = progress

    def tell(self) -> None:
        self._progress(1.0 - self._share * self.left / self._whole if self._whole else 1.0)

    def count(self, file: str, size: int) -> bool:
        """Account for bytes that are written; whether they were the last of the file."""
        self.left -= size
        self._files[file] -= size
        self.tell()
        return not self._files[file]


class _Writers:
    """Open files, each closed when it has all: a model may have more than may be open at once."""

    def __init__(self, parts: Mapping[str, PartialFile]) -> None:
        self._parts = parts
        self._open: dict[str, tuple[contextlib.ExitStack, Callable[[int, bytes], None]]] = {}

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            for closing, _write in self._open.values():
                stack.push(closing.__exit__)

    def write(self, file: str, start: int, data: bytes) -> None:
        if file not in self._open:
            stack = contextlib.ExitStack()
            self._open[file] = stack, stack.enter_context(self._parts[file].opened())
        self._open[file][1](start, data)

    def close(self, file: str) -> None:
        self._open.pop(file)[0].close()


def remember(root: Path, revision: str | None, listing: Listing) -> None:
    """Keep what a revision is, for times when the hub is out of reach."""
    replace_file(_memory(root, revision), msgspec.json.encode(listing))


def recall(root: Path, revision: str | None) -> Listing | None:
    """What a revision was when the hub was last asked."""
    try:
        with _memory(root, revision).open("rb") as file:
            return msgspec.json.decode(file.read(2**24), type=Listing)
    except (OSError, msgspec.DecodeError, ValueError):
        return None


def _memory(root: Path, revision: str | None) -> Path:
    return root / f"{(revision or 'main').replace('/', '--')}.json"
