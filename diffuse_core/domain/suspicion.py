"""Suspicion: how long a suspect has to refute what is said of it, after Lifeguard.

What others say makes us look and sets how long we wait; it never replaces a look of our own. Dead
is only who gave us no sign of life during all of the suspicion, failed a probe of ours, and failed
another one SUSPICION_LEAST_S later: liars cannot bring that about, and neither does a pause of
five seconds. The more nodes confirm a suspicion, the sooner it ends; in a network so small that
nobody is left to confirm, it is short from the start.

In a large network whoever finds a node silent keeps that to itself for a while and goes on
looking. So a pause is no news, which a thousand nodes would pass on and a thousand more refute;
only the few that chanced upon it meanwhile know, and the paused node is not met by a thousand
pings when it goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.view import Liveness

SUSPICION_S = 3.0
"""Seconds of suspicion per decade of members, once confirmed (memberlist has 4, and dies at once
at the end of it): the news, and the refutation of it, take as long as there are decades."""
SUSPICION_LEAST_S = 5.0
"""With the second that a probe takes, a pause of five seconds is survived."""
SUSPICION_UNCONFIRMED = 6.0
CONFIRMATIONS = 2
QUIET_S = 4.0
"""So long does who found a node silent keep it to itself: with the second that its probe took, as
long as a pause that is to pass unnoticed."""
QUIET_FROM = 32
"""In a network of fewer nodes it tells at once, and those who hear it look at once."""
LOOK_WITHIN_S = 2.0
"""Otherwise those who hear of a suspect look within so many seconds, not all at once."""
MAX_ACCUSERS = 8


class Suspicion:
    """Who accuses one node, since when, and what our own probes found.

    `failed_at` is when a probe of ours first failed. `look_at` is when we probe for the first
    time. `told` says that others heard of it from us.
    """

    def __init__(self, own: NodeId, now: float) -> None:
        self._own = own
        self.started = now
        self.failed_at: float | None = None
        self.look_at = now
        self.told = False
        self._accusers: dict[NodeId, None] = {}
        self._dead_claims: dict[NodeId, None] = {}

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
        """The accuser `by` holds the node for dead."""
        if by in self._accusers:
            self._dead_claims[by] = None

    def fail(self, now: float) -> None:
        """A probe of our own failed."""
        self.accuse(self._own)
        if self.failed_at is None:
            self.failed_at = now

    def ripe(self, now: float, live: int, *, refused: bool = False) -> bool:
        """Whether it is time to tell others of what we found; at once if it refused."""
        if self.told or self.failed_at is None:
            return False
        alone = len(self._accusers) == 1 and not refused
        return not (alone and quiet(live) and now < self.failed_at + QUIET_S)

    def withdraw(self) -> None:
        """Our own probe passed after all."""
        self.failed_at = None
        self._accusers.pop(self._own, None)

    def shift(self, by: float) -> None:
        """Time in which we did not run does not count."""
        self.started += by
        self.look_at += by
        if self.failed_at is not None:
            self.failed_at += by

    def wait(self, now: float, live: int, rng: random.Random) -> None:
        """Look soon, but not all at the same time."""
        self.look_at = now + (rng.uniform(0.0, LOOK_WITHIN_S) if quiet(live) else 0.0)

    def review_at(self, live: int, probe_s: float) -> float:
        """When to begin the next probe, of one that takes `probe_s` to fail."""
        if self.failed_at is None:
            return self.look_at
        return max(self.failed_at, self.deadline(live) - probe_s) if self.told else self.failed_at

    def deadline(self, live: int) -> float:
        """When the suspect is dead if our probes fail, with `live` nodes besides ourselves."""
        least = _least(live)
        wanted = min(CONFIRMATIONS, max(0, live - 1))  # the suspect itself gives none
        span = least
        if wanted == CONFIRMATIONS:
            most = SUSPICION_UNCONFIRMED * least
            given = min(max(0, len(self._accusers) - 1), wanted)
            span = most - math.log(given + 1) / math.log(wanted + 1) * (most - least)
        claimed = len(self._dead_claims) >= max(1, wanted)
        first = self.started if self.failed_at is None else self.failed_at
        earliest = first + SUSPICION_LEAST_S
        return earliest if claimed else max(earliest, self.started + span)


@dataclass(slots=True)
class Known:
    """What a node thinks of another. `strikes` counts refusals in a row.

    Until `spared_until` no suspicion begins on the word of others.
    """

    heard_at: float
    state: Liveness = "alive"
    rtt_s: float | None = None
    strikes: int = 0
    suspicion: Suspicion | None = None
    spared_until: float = -math.inf


def quiet(live: int) -> bool:
    """Whether a network of `live` nodes besides ourselves is large enough to keep quiet in."""
    return live >= QUIET_FROM


def _least(live: int) -> float:
    return max(SUSPICION_LEAST_S, SUSPICION_S * math.log10(live + 1))
