"""Rates over the last seconds: tokens computed, and how long passes take and are waited for."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.services.tally import StageTally

if TYPE_CHECKING:
    from diffuse_core.ports import Clock

WINDOW_S = 10.0
MAX_SAMPLES = 4096


class _Pass(NamedTuple):
    at: float
    rows: int
    seconds: float
    short: bool


class Meter:
    """Counts rows, compute seconds and waiting of passes in a sliding window."""

    def __init__(self, clock: Clock, tally: StageTally | None = None) -> None:
        self._clock = clock
        self.tally = tally or StageTally()
        """The same since the start."""
        self._samples: deque[_Pass] = deque(maxlen=MAX_SAMPLES)
        self._waits: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)
        self._step_ms = 0.0

    def add(self, rows: int, seconds: float, *, short: bool) -> None:
        """Account for a pass of `rows` positions, of all its Sessions, that took `seconds`.

        `short` passes are those of single rows, which tokens wait for, not those of a prompt.
        """
        self._samples.append(_Pass(self._clock.monotonic(), rows, seconds, short))
        (self.tally.short if short else self.tally.long).add(seconds)

    def waited(self, seconds: float) -> None:
        """Account for a step that was ready for so long when its short pass began."""
        self._waits.append((self._clock.monotonic(), seconds))
        self.tally.waits.add(seconds)

    def _recent(self) -> deque[_Pass]:
        limit = self._clock.monotonic() - WINDOW_S
        while self._samples and self._samples[0].at < limit:
            self._samples.popleft()
        return self._samples

    def tokens_per_s(self) -> float:
        """Positions computed per second of the window (0 when nothing ran)."""
        recent = self._recent()
        if not recent:
            return 0.0
        span = max(1.0, self._clock.monotonic() - recent[0].at)
        return round(sum(each.rows for each in recent) / span, 1)

    def step_ms(self) -> float:
        """Median compute milliseconds of a short pass in the window; of the last one with any.

        It is how fast this Host is, which does not change because it is idle. 0 when none ran yet.
        The median, because whoever looks slow is asked no more, and so would look slow for ever.
        """
        short = [each.seconds for each in self._recent() if each.short]
        if short:
            self._step_ms = round(1000 * median(short), 2)
        return self._step_ms

    def wait_ms(self) -> float:
        """Mean milliseconds that steps of short passes waited in the window (0 when none did)."""
        limit = self._clock.monotonic() - WINDOW_S
        while self._waits and self._waits[0][0] < limit:
            self._waits.popleft()
        if not self._waits:
            return 0.0
        return round(1000 * sum(seconds for _, seconds in self._waits) / len(self._waits), 2)
