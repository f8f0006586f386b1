"""What short passes cost lately: whether the next one is brief, and how long others may take."""

from __future__ import annotations

import statistics
from collections import deque

LONG_SHARE = 0.75
"""How long a bit of a long pass takes, in short passes: less than 1, for it ends with a layer."""
QUIET_BIT_S = 0.05
"""The same when nobody is being answered: what a newcomer may have to wait."""
QUIET_S = 2.0
REMEMBERED = 5
BRIEF_S = 0.02
"""A short pass that takes no longer is run in the event loop: what else it has to do can wait so
long, and the hand-over to a thread and back costs each token a quarter of a millisecond."""


class PassCosts:
    """Remembers the last short passes. Times are arguments, of one clock, in seconds."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._work: deque[int] = deque(maxlen=REMEMBERED)
        self._at = 0.0

    def add(self, seconds: float, work: int, now: float) -> None:
        """A short pass ended that took so long, for so much work (see lane.work_of)."""
        self._seconds.append(seconds)
        self._work.append(work)
        self._at = now

    def is_brief(self, work: int) -> bool:
        """Whether a pass of so much work will hardly take longer than BRIEF_S.

        Judged by each of the last ones, at the worst: that rows cost the same whoever shares
        the pass, and that fewer cost no less.
        """
        if len(self._seconds) < REMEMBERED:
            return False
        known = zip(self._seconds, self._work, strict=True)
        return all(seconds * max(1.0, work / had) <= BRIEF_S for seconds, had in known)

    def bit_s(self, now: float) -> float:
        """How long a bit of a long pass may take now."""
        if not self._seconds or now - self._at > QUIET_S:
            return QUIET_BIT_S
        return LONG_SHARE * statistics.median(self._seconds)
