"""Event-loop lag: how late a node's loop gets to what is due, measured all the time.

A timer is set again and again; its lateness is what anything else that became due at that moment
had to wait: because a handler kept the loop, a thread kept the interpreter, or the machine kept
the process from running.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import NamedTuple

BEAT_S = 0.2
"""Five wake-ups a second take 0.05 % of a core."""
WINDOW = 300
"""Beats of about a minute."""
LEAST_S = 1e-4
PER_DECADE = 40
BUCKETS = 241
"""From 0.1 ms to 100 s, each 6 % wider than the one before."""


class Lags(NamedTuple):
    """Seconds of lateness: quantiles of the last minute or so, and since the start."""

    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    ever_p99_s: float = 0.0
    ever_max_s: float = 0.0


class LagRecord:
    """Keeps the last beats as they were, and all of them counted by size."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._counts = [0] * BUCKETS
        self._worst = 0.0

    def add(self, late: float) -> None:
        """Account for one beat that came `late` seconds after its time."""
        late = max(0.0, late)
        self._recent.append(late)
        self._counts[_bucket(late)] += 1
        self._worst = max(self._worst, late)

    def lags(self) -> Lags:
        """The figures of this moment; those since the start are exact to 6 %."""
        if not self._recent:
            return Lags()
        recent = sorted(self._recent)
        return Lags(
            _quantile(recent, 0.5), _quantile(recent, 0.99), recent[-1], self._ever(), self._worst
        )

    def _ever(self) -> float:
        rank, seen = math.ceil(0.99 * sum(self._counts)), 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return min(self._worst, LEAST_S * 10 ** (bucket / PER_DECADE))
        return self._worst


class LoopLag:
    """Measures the running loop from `start` on until `stop`."""

    def __init__(self) -> None:
        self._record = LagRecord()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; must be called in the loop."""
        loop = asyncio.get_running_loop()
        self._beat(loop, loop.time())

    def stop(self) -> None:
        """End it; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lags(self) -> Lags:
        """The figures of this moment."""
        return self._record.lags()

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._record.add(now - due)
        # From now, not from when it was due: a stall is one late beat, not a crowd of them.
        self._timer = loop.call_at(now + BEAT_S, self._beat, loop, now + BEAT_S)


def _bucket(late: float) -> int:
    if late <= LEAST_S:
        return 0
    return min(BUCKETS - 1, math.ceil(PER_DECADE * math.log10(late / LEAST_S)))


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]
