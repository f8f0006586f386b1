"""Runs a target on mutated inputs, the same ones for the same seed, and keeps what it finds."""

from __future__ import annotations

import hashlib
import mmap
import random
import time
from typing import TYPE_CHECKING

from tests.fuzz.registry import HERE
from tests.fuzz.watch import MIB, Figures, Finding, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.fuzz.mutation import Mutator
    from tests.fuzz.registry import Target
    from tests.fuzz.script_mutation import ScriptMutator

FOUND = HERE / "found"
"""Not kept in git: what is mended goes into the corpus."""
MAX_LEARNT = 4096
_CLOCK_EVERY = 64
_ROOM = 8 * MIB
_LENGTH = 8


class LastInput:
    """The input that runs now, in a file: it is there even when the process is killed by it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not emptied: another run may have it mapped, and would be killed.
        path.touch()
        with path.open("rb+") as file:
            file.truncate(_ROOM)
            self._map = mmap.mmap(file.fileno(), _ROOM)

    def put(self, data: bytes) -> None:
        """Remember `data`."""
        self._map[:_LENGTH] = len(data).to_bytes(_LENGTH, "little")
        self._map[_LENGTH : _LENGTH + len(data)] = data

    @staticmethod
    def read(path: Path) -> bytes:
        """What was remembered last."""
        kept = path.read_bytes()
        return kept[_LENGTH : _LENGTH + int.from_bytes(kept[:_LENGTH], "little")]


def last_input(target: str, folder: Path = FOUND) -> Path:
    """Where the input of a run of `target` is."""
    return folder / f"{target}.last"


def fuzz(
    target: Target,
    *,
    runs: int,
    seed: int,
    minutes: float | None = None,
    watch: Watch | None = None,
    folder: Path = FOUND,
) -> Figures:
    """Run the corpus, then `runs` mutations of it, or fewer when the minutes are up.

    Inputs of which something new became are mutated further.

    Raises:
        Finding: at the first input that raises, hangs or makes the process grow.
    """
    corpus = target.inputs()
    _warm(target, corpus)
    watch = watch or Watch(target.run)
    rng = random.Random(f"{target.name}/{seed}")
    kept = LastInput(last_input(target.name, folder))
    with watch.guarding():
        for data in corpus:
            kept.put(data)
            watch.run(data)
        _mutate(watch, kept, target.mutator(rng, corpus), corpus, runs, minutes)
        watch.look()
    last_input(target.name, folder).unlink(missing_ok=True)
    return watch.figures


def _warm(target: Target, corpus: Sequence[bytes]) -> None:
    """Whatever is made once, tables and caches, is made now and is no growth."""
    for data in corpus:
        try:
            target.run(data)
        except Exception as error:
            raise Finding(data, error) from error


def _mutate(
    watch: Watch,
    kept: LastInput,
    mutator: Mutator | ScriptMutator,
    corpus: list[bytes],
    runs: int,
    minutes: float | None,
) -> None:
    end = None if minutes is None else time.monotonic() + minutes * 60
    for number in range(runs):
        if end is not None and number % _CLOCK_EVERY == 0 and time.monotonic() > end:
            return
        data = mutator.next()
        kept.put(data)
        if watch.run(data) and len(corpus) < MAX_LEARNT:
            corpus.append(data)


def save(target: str, finding: Finding, folder: Path = FOUND) -> Path:
    """Write what was found to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
    path.write_bytes(finding.data)
    return path


def replay(target: Target, inputs: Sequence[bytes]) -> Figures:
    """Run some inputs only. Raises Finding like `fuzz`."""
    watch = Watch(target.run)
    with watch.guarding():
        for data in inputs:
            watch.run(data)
            watch.look(data)
    return watch.figures
