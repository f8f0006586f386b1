"""An event loop that can stay awake for what will come in a moment.

A core that sleeps between two tokens makes the next pass slower than what it takes to wake: its
clock is down and its caches are cold. On two cores the passes of a 4-bit model split in two took
10 ms a token where one process took 8.7 ms.

While awake the loop asks for events again and again instead of sleeping until they come. It gives
way to whoever wants the core, and when that is somebody it sleeps as ever for a while: what else
runs on this machine needs the core more.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from selectors import SelectorKey

MOST_S = 0.1
"""What one call may keep the loop awake."""
GAP_S = 2e-4
"""Asking takes microseconds. Between two questions so far apart something else had the core."""
LOST_S = 1e-3
SHARE = 0.3
"""Losing more of the time than this, and at least LOST_S, is to be in somebody's way."""
PAUSE_S = 2.0

Ready = list[tuple["SelectorKey", int]]


def _give_way() -> None:
    """Let another process that is ready have the core."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


class WakefulSelector(selectors.DefaultSelector):
    """Waits awake until a given time, and asleep after it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._not_before = 0.0

    def stay_awake(self, seconds: float) -> None:
        """Wait awake for at most so long from now on."""
        now = self._clock()
        if now >= self._not_before:
            self._until = now + min(seconds, MOST_S)

    def select(self, timeout: float | None = None) -> Ready:
        """As selectors.BaseSelector.select."""
        if self._until and (timeout is None or timeout > 0):
            begun = self._clock()
            ready = self._select_awake(begun, timeout)
            if ready:
                return ready
            if timeout is not None:
                timeout = max(0.0, timeout - (self._clock() - begun))
        return super().select(timeout)

    def _select_awake(self, begun: float, timeout: float | None) -> Ready:
        until = self._until if timeout is None else min(self._until, begun + timeout)
        now, lost = begun, 0.0
        while now < until:
            ready = super().select(0)
            if ready:
                return ready
            _give_way()
            last, now = now, self._clock()
            if now - last > GAP_S:
                lost += now - last
                if lost > max(LOST_S, SHARE * (now - begun)):
                    self._not_before = now + PAUSE_S
                    self._until = 0.0
                    return []
        if now >= self._until:
            self._until = 0.0
        return []


class WakefulLoop(asyncio.SelectorEventLoop):
    """An event loop with `stay_awake`, for whoever knows that something comes in a moment."""

    def __init__(self) -> None:
        self._wakeful = WakefulSelector()
        super().__init__(self._wakeful)

    def stay_awake(self, seconds: float) -> None:
        """Do not sleep for so many seconds, if nobody else wants the core."""
        self._wakeful.stay_awake(seconds)
