"""Suspicion: how long a suspect has to refute what is said of it, after Lifeguard.

What others say makes us look, sooner or later, and sets how long we wait; it never replaces a
look of our own. Dead is only who gave us no sign of life during all of the suspicion, failed a
probe of ours, and failed another one SUSPICION_LEAST_S later: liars cannot bring that about, and
neither does a pause of five seconds. The more nodes confirm a suspicion, the sooner it ends; in a
network so small that nobody is left to confirm, it is short from the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.view import Liveness

SUSPICION_S = 3.4
"""Seconds of suspicion per decade of members, once confirmed (memberlist has 4, and dies at once
at the end of it): the news, and the refutation of it, take as long as there are decades."""
SUSPICION_LEAST_S = 5.0
"""With the second that a probe takes, a pause of five seconds is survived."""
SUSPICION_UNCONFIRMED = 6.0
CONFIRMATIONS = 2
CONFIRMERS = 8
"""About so many of those that hear of a suspect look at once; the others wait for a refutation
first. So a node that was only paused is not met by a thousand pings when it goes on."""
LOOK_BEFORE_S = (6.0, 4.0)
"""Between so many seconds before the end do the others look: time for two probes."""
LOOK_AT_DEAD_S = 2.0
"""Within so many seconds do we look at what another one already holds for dead."""
MAX_ACCUSERS = 8


class Suspicion:
    """Who accuses one node, since when, and what our own probes found.

    `failed_at` is when a probe of ours first failed. `look_at` is when we probe for the first
    time. `passed_on` says that we tell others of the suspicion though we did not look yet.
    """

    def __init__(self, own: NodeId, now: float) -> None:
        self._own = own
        self.started = now
        self.failed_at: float | None = None
        self.look_at = now
        self.passed_on = False
        self._accusers: dict[NodeId, None] = {}
        self._dead_claims: dict[NodeId, None] = {}

    @property
    def groundless(self) -> bool:
        """Whether nobody accuses any more."""
        return not self._accusers

    @property
    def told(self) -> bool:
        """Whether we tell others of it."""
        return self.failed_at is not None or self.passed_on

    def accuse(self, by: NodeId) -> bool:
        """Add an accuser; whether it is a new one."""
        full = len(self._accusers) >= MAX_ACCUSERS and by != self._own
        if by in self._accusers or full:
            return False
        self._accusers[by] = None
        return True

    def claim_dead(self, by: NodeId) -> bool:
        """The accuser `by` holds the node for dead; whether it is the first to do so."""
        if by in self._accusers:
            self._dead_claims[by] = None
        return len(self._dead_claims) == 1

    def fail(self, now: float) -> bool:
        """A probe of our own failed; whether it is the first one."""
        self.accuse(self._own)
        if self.failed_at is not None:
            return False
        self.failed_at = now
        return True

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
        """Look late: when a suspect that was only paused would be back, with some spread."""
        early, late = (max(0.0, _least(live) - before) for before in LOOK_BEFORE_S)
        self.look_at = now + rng.uniform(early, late)

    def review_at(self, live: int, probe_s: float) -> float:
        """When to begin the next probe, of one that takes `probe_s` to fail."""
        if self.failed_at is None:
            return self.look_at
        return max(self.failed_at, self.deadline(live) - probe_s)

    def deadline(self, live: int) -> float:
        """When the suspect is dead if our probes fail, with `live` nodes besides ourselves."""
        least = _least(live)
        wanted = min(CONFIRMATIONS, max(0, live - 1))  # the suspect itself gives none
        span = least
        if wanted == CONFIRMATIONS:
            most = SUSPICION_UNCONFIRMED * least
            given = min(max(0, len(self._accusers) - 1), wanted)
            span = most - math.log(given + 1) / math.log(wanted + 1) * (most - least)
        if self.failed_at is None:
            return self.started + span
        claimed = len(self._dead_claims) >= max(1, wanted)
        earliest = self.failed_at + SUSPICION_LEAST_S
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


def _least(live: int) -> float:
    return max(SUSPICION_LEAST_S, SUSPICION_S * math.log10(live + 1))
