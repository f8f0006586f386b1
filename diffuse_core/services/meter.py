"""Rates over the last seconds: tokens computed, and compute time per pass."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

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
    """Counts rows and compute seconds of passes in a sliding window."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Pass] = deque(maxlen=MAX_SAMPLES)

    def add(self, rows: int, seconds: float, *, short: bool) -> None:
        """Account for a pass of `rows` positions, of all its Sessions, that took `seconds`.

        `short` passes are those that tokens wait for, not those of a prompt.
        """
        self._samples.append(_Pass(self._clock.monotonic(), rows, seconds, short))

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
        """Mean compute milliseconds of a short pass in the window (0 when none ran)."""
        short = [each.seconds for each in self._recent() if each.short]
        return round(1000 * sum(short) / len(short), 2) if short else 0.0
