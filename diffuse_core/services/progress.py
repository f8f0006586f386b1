"""Which Stage holds a Session up, from how many rows each of them counts.

A Stage may answer whenever it is asked and yet do nothing: it keeps what it was sent, does not
run it, or does not send on what came of it. Every Stage tells how many rows it received, ran and
sent on (SessionAlive); where nobody gets on, the counts show at whom the rows end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.session import PREFILL_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

STUCK_S = 30.0
"""After so long without any progress a Stage is held to be stuck."""
STUCK_PER_ROW_S = 0.5
"""Seconds more for each row of the longest piece that a pass may be running."""
TOKEN_S = 120.0
TOKEN_PER_ROW_S = 0.5
"""So long, with so much for each row to be run, a token may take whatever the counts say."""


class Counts(msgspec.Struct, frozen=True):
    """Rows that a Stage received, ran and sent on."""

    received: int = 0
    ran: int = 0
    sent: int = 0


def holder(counts: Sequence[Counts], rows: int) -> int:
    """Index of the Stage at which rows end, of a Route that is to have run `rows` of them.

    From the last one back: who waits for rows that were sent to it, has not run what it has, or
    has run all and gave nothing. One that has nothing to do leaves it to the one before.
    """
    for index in range(len(counts) - 1, -1, -1):
        own, sent = counts[index], counts[index - 1].sent if index else rows
        is_last = index == len(counts) - 1
        done = min(own.ran, rows)
        if own.received < sent or done < own.received:
            return index
        if done >= rows if is_last else own.sent < done:
            return index
    return 0


class Progress:
    """Whether a Session gets on while somebody waits for its next token. Times in seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._moved = 0.0
        self._total = 0
        self.fed = 0
        """Rows that the first Stage has from the Client itself; others come round the ring."""
        self._suspects: set[bytes] = set()

    def begin(self, now: float) -> None:
        """A token is waited for from now on."""
        self._since = self._moved = now
        self._total = 0

    def end(self) -> None:
        """Nobody waits any more."""
        self._since = None

    def is_stuck(self, counts: Sequence[Counts], rows: int, now: float) -> bool:
        """Whether it is time to give it up. `rows` are those that the first Stage was fed."""
        if self._since is None:
            return False
        # More than there is to do is no progress: a Stage may tell what it likes.
        total = sum(min(n, rows) for one in counts for n in (one.received, one.ran, one.sent))
        if total > self._total:
            self._total, self._moved = total, now
        longest = min(rows, PREFILL_ROWS)
        if now - self._since > TOKEN_S + TOKEN_PER_ROW_S * rows:
            return True
        return now - self._moved > STUCK_S + STUCK_PER_ROW_S * longest

    def culprit(self, counts: Sequence[Counts], rows: int, nodes: Sequence[bytes | None]) -> int:
        """Index of the Stage that is to be replaced: the `holder`, or the one before it.

        Rows that were sent and did not arrive may be lost through either end. The later one goes
        first; where rows of the same node do not arrive at another either, that node goes.
        `nodes` are those of the Route; None where it is beyond doubt.
        """
        index = holder(counts, rows)
        before = nodes[index - 1]
        given = counts[index - 1].sent if index else rows
        by_client = index == 0 and counts[0].received < self.fed
        if before is None or len(nodes) == 1 or by_client or counts[index].received >= given:
            return index
        if nodes[index] is None or before in self._suspects:
            return (index - 1) % len(nodes)
        self._suspects.add(before)
        return index
