"""Suspicion: how long a suspect has to refute what is said of it, after Lifeguard.

The more nodes confirm a suspicion by probes of their own, the shorter it lasts. In a network so
small that nobody is left to confirm, it is short from the start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

SUSPICION_S = 4.0
"""Seconds of suspicion per decade of members, once confirmed (memberlist)."""
SUSPICION_LEAST_S = 5.0
"""With the second that a probe takes, a pause of five seconds is survived."""
SUSPICION_UNCONFIRMED = 6.0
CONFIRMATIONS = 2
MAX_ACCUSERS = 8


class Suspicion:
    """Who accuses one node, since when."""

    def __init__(self, own: NodeId, now: float) -> None:
        self._own = own
        self.started = now
        self._accusers: dict[NodeId, None] = {}
        self._dead_claims: dict[NodeId, None] = {}

    @property
    def witnessed(self) -> bool:
        """Whether our own probe failed too."""
        return self._own in self._accusers

    @property
    def groundless(self) -> bool:
        """Whether nobody accuses any more."""
        return not self._accusers

    def accuse(self, by: NodeId) -> bool:
        """Add an accuser; whether it is a new one."""
        full = len(self._accusers) >= MAX_ACCUSERS and by != self._own
        if by in self._accusers or full:
            return False
        self._accusers[by] = None
        return True

    def claim_dead(self, by: NodeId) -> None:
        """The accuser `by` waited long enough and holds the node for dead."""
        if by in self._accusers:
            self._dead_claims[by] = None

    def withdraw(self) -> None:
        """Our own probe passed after all."""
        self._accusers.pop(self._own, None)

    def convicted(self, live: int) -> bool:
        """Whether our own probe failed and enough others hold the node for dead."""
        return self.witnessed and len(self._dead_claims) >= max(1, _wanted(live))

    def deadline(self, live: int) -> float:
        """When the suspect is dead, in a network of `live` nodes besides ourselves."""
        least = max(SUSPICION_LEAST_S, SUSPICION_S * math.log10(live + 1))
        wanted = _wanted(live)
        if wanted < CONFIRMATIONS:
            return self.started + least
        most = SUSPICION_UNCONFIRMED * least
        given = min(max(0, len(self._accusers) - 1), wanted)
        share = math.log(given + 1) / math.log(wanted + 1)
        return self.started + most - share * (most - least)


def _wanted(live: int) -> int:
    """Confirmations to wait for: of the live nodes, the suspect itself gives none."""
    return min(CONFIRMATIONS, max(0, live - 1))
