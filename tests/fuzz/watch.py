"""Watching a target: that it neither raises, hangs nor grows."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter as CounterType
    from collections.abc import Callable, Iterator
    from types import FrameType

from collections import Counter

MIB = 2**20
HANG_S = 1.0
GROWTH_BYTES = 64 * MIB
MAX_OUTCOMES = 256


class Hung(BaseException):
    """An input took longer than it may; no handler of the code at test shall catch it."""


class GrowthError(Exception):
    """Memory grew by more than it may."""


@dataclass
class Finding(Exception):  # noqa: N818 - what is looked for, not a mishap
    """An input that must not do what it does."""

    data: bytes
    cause: BaseException

    def __str__(self) -> str:
        return f"{type(self.cause).__name__}: {self.cause}"


@dataclass
class Figures:
    """What was measured; seconds are of CPU but for `wall_s`."""

    inputs: int = 0
    wall_s: float = 0.0
    slowest_s: float = 0.0
    slowest: bytes = b""
    growth: int = 0
    outcomes: CounterType[str] = field(default_factory=Counter)


class Memory:
    """How much this process grew, in bytes: what it holds, or held at its worst."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            # Makes Linux forget the worst so far, which importing may have been.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._base = max(self._held(), 1)
        self._worst = self._peak()

    def growth(self) -> int:
        """Since this was made. The worst counts from where the worst was at that time."""
        return max(self._held() - self._base, self._peak() - self._worst, 0)

    @staticmethod
    def _held() -> int:
        try:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @staticmethod
    def _peak() -> int:
        # Not from getrusage where it can be helped: that counts what came before exec, too.
        with contextlib.suppress(OSError):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            return int(status.partition("VmHWM:")[2].split()[0]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Watch:
    """Runs inputs one by one and keeps the figures.

    Args:
        target: takes an input and says in a word what became of it.
        hang_s: CPU seconds that one input may take.
        growth_bytes: by how much the process may grow from when this is made.
        look_every: inputs between looks at the memory.
    """

    def __init__(
        self,
        target: Callable[[bytes], str],
        *,
        hang_s: float = HANG_S,
        growth_bytes: int = GROWTH_BYTES,
        look_every: int = 256,
    ) -> None:
        self._target = target
        self._hang_s = hang_s
        self._growth_bytes = growth_bytes
        self._look_every = look_every
        self._memory = Memory()
        self._seen_at_tick = -1
        self._running = False
        self.figures = Figures()

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """Within it a hang is interrupted; in the main thread only.

        One timer ticks all the time, since one for each input would cost more than the input.
        """
        before = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, self._hang_s, self._hang_s)
        started = time.perf_counter()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            self.figures.wall_s += time.perf_counter() - started

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if self._running and self._seen_at_tick == self.figures.inputs:
            raise Hung(f"took more than {self._hang_s:g} s of CPU")
        self._seen_at_tick = self.figures.inputs

    def run(self, data: bytes) -> bool:
        """Run one input; whether what became of it had not been seen before.

        Raises:
            Finding: it raised, hung, or memory grew.
        """
        figures = self.figures
        figures.inputs += 1
        started = time.process_time()
        self._running = True
        try:
            outcome = self._target(data)
        except (Exception, Hung) as error:
            raise Finding(data, error) from error
        finally:
            self._running = False
        took = time.process_time() - started
        if took > figures.slowest_s:
            figures.slowest_s, figures.slowest = took, data
        if took > self._hang_s:
            raise Finding(data, Hung(f"took {took:.2f} s of CPU"))
        if figures.inputs % self._look_every == 0:
            self.look(data)
        new = outcome not in figures.outcomes
        if new and len(figures.outcomes) >= MAX_OUTCOMES:
            return False
        figures.outcomes[outcome] += 1
        return new

    def look(self, data: bytes = b"") -> None:
        """See how far memory grew.

        Raises:
            Finding: too far, by `data` or by one of the inputs before it.
        """
        self.figures.growth = max(self.figures.growth, self._memory.growth())
        if self.figures.growth > self._growth_bytes:
            grown = f"memory grew by {self.figures.growth / MIB:.0f} MiB within the latest inputs"
            raise Finding(data, GrowthError(grown))
