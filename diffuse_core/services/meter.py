"""Rates over the last seconds: tokens computed, and compute time per pass."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffuse_core.ports import Clock

WINDOW_S = 10.0
MAX_SAMPLES = 4096


class Meter:
    """Counts rows and compute seconds in a sliding window."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int, float]] = deque(maxlen=MAX_SAMPLES)

    def add(self, rows: int, seconds: float) -> None:
        """Account for one pass of `rows` positions that took `seconds`."""
        self._samples.append((self._clock.monotonic(), rows, seconds))

    def _recent(self) -> deque[tuple[float, int, float]]:
        limit = self._clock.monotonic() - WINDOW_S
        while self._samples and self._samples[0][0] < limit:
            self._samples.popleft()
        return self._samples

    def tokens_per_s(self) -> float:
        """Positions computed per second of the window (0 when nothing ran)."""
        recent = self._recent()
        if not recent:
            return 0.0
        span = max(1.0, self._clock.monotonic() - recent[0][0])
        return round(sum(rows for _, rows, _ in recent) / span, 1)

    def step_ms(self) -> float:
        """Mean compute milliseconds of a one-row pass in the window (0 when none ran)."""
        single = [seconds for _, rows, seconds in self._recent() if rows == 1]
        return round(1000 * sum(single) / len(single), 2) if single else 0.0
