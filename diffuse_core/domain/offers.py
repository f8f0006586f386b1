"""Offers: how many circuits a Sentinel may have a node join, and when it is of no use.

Each join makes the node dial the Sentinel and shake hands, on the word of the Sentinel alone. So
there is an allowance of joins for each Sentinel, one of answers to offers beyond it, and a
Sentinel is given up whose circuits lead nowhere. Whether that is its fault or that of the nodes
that open circuits and leave them cannot be told from here, which is why a single success among
the last ones clears it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain.allowances import Allowances
from diffuse_core.domain.bounded import forget_oldest

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

JOIN_BURST = 32
"""As many Clients may come at once; an honest Sentinel offers no more at a time."""
JOINS_PER_S = 8.0
LAST = 32
MOST_FAILED = 24
"""So many of the LAST joins, and not one that led to a proven node: it is of no use."""
GIVEN_UP_S = 300.0
MAX_SENTINELS = 64


class Offers:
    """What the offers of each Sentinel cost and came to. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._joins = Allowances(JOIN_BURST, JOINS_PER_S, MAX_SENTINELS)
        self._declines = Allowances(JOIN_BURST, JOINS_PER_S, MAX_SENTINELS)
        self._proven: dict[NodeId, deque[bool]] = {}

    def may_join(self, sentinel: NodeId, now: float) -> bool:
        """Whether one more circuit that it offers may be joined now; then that is counted."""
        return self._joins.spend(sentinel, 1, now)

    def may_decline(self, sentinel: NodeId, now: float) -> bool:
        """Whether one more offer may be answered; a flood is answered with silence."""
        return self._declines.spend(sentinel, 1, now)

    def joined(self, sentinel: NodeId, *, proven: bool) -> bool:
        """A join came to its end; whether the Sentinel is of use still.

        Args:
            sentinel: who offered it.
            proven: whether there was the node at the other end that was told.
        """
        last = self._proven.pop(sentinel, None) or deque(maxlen=LAST)
        last.append(proven)
        if len(last) >= MOST_FAILED and not any(last):
            return False
        self._proven[sentinel] = last
        forget_oldest(self._proven, MAX_SENTINELS)
        return True
