"""The rhythm of a Stage: how long it has nothing to run before the next row comes round."""

from __future__ import annotations

from collections import deque

REMEMBERED = 5
LONGEST_S = 0.03
"""A ring that takes longer than that is slowed by other things than a core that has to wake."""
LEEWAY = 1.5


class Rhythm:
    """Measures the last pauses, to tell how long the next one may be. Time is an argument."""

    def __init__(self) -> None:
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._since: float | None = None

    def ended(self, now: float) -> float:
        """A pause begins; for how many seconds it is worth to stay awake, 0 for not at all.

        It is where all the last pauses were short: a token came round and went on, each time.
        """
        self._since = now
        if len(self._pauses) < REMEMBERED or max(self._pauses) > LONGEST_S:
            return 0.0
        return LEEWAY * max(self._pauses)

    def began(self, now: float) -> None:
        """There is something to run."""
        if self._since is not None:
            self._pauses.append(now - self._since)
            self._since = None
