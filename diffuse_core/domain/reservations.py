"""Reservations: at which Sentinels to be reachable through, when to renew, when to move.

A node that cannot be dialled keeps a reservation at WANTED different Sentinels. Each hangs on one
link, ends with it, and is renewed long before its time is up, which also finds a Sentinel that
fell silent. Where one ends the next best Sentinel takes its place; one that refuses or fails is
left alone for a while, the longer the more often that happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from diffuse_core.domain.identity import NodeId

WANTED = 2
RENEW_LONGEST_S = 60.0
MISSED_S = 5.0
"""How often one is renewed whose Sentinel is no longer among those that can be asked."""
ANSWER_S = 10.0
"""From asking to the answer; the Sentinel may have to be dialled first."""
STEADY_S = 60.0
"""One that was held for so long ended for some new reason: its Sentinel is asked at once."""
REST_S = 0.5
REST_LONGEST_S = 60.0
FORGIVEN_S = 600.0
"""After a rest: then it is a Sentinel like any other again."""
MAX_REMEMBERED = 256


@dataclass(frozen=True)
class Candidate:
    """A live Sentinel that may be asked; `round_trip` in seconds, None when not measured."""

    node: NodeId
    addresses: tuple[str, ...]
    bootstrap: bool = False
    round_trip: float | None = None


@dataclass
class _Held:
    since: float
    granted: float
    seconds: float

    @property
    def until(self) -> float:
        return self.granted + self.seconds

    def renew_at(self, *, missed: bool) -> float:
        return self.granted + min(self.seconds / 3, MISSED_S if missed else RENEW_LONGEST_S)


@dataclass
class _Failure:
    rests_until: float
    times: int


class ReservationPlan:
    """What one node asks of which Sentinels. Times are monotonic seconds."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._held: dict[NodeId, _Held] = {}
        self._asked: dict[NodeId, float] = {}
        self._failures: dict[NodeId, _Failure] = {}

    def held(self, now: float) -> tuple[NodeId, ...]:
        """The Sentinels through which this node can be reached, longest held first."""
        return tuple(node for node in self._held if self.holds(node, now))

    def holds(self, sentinel: NodeId, now: float) -> bool:
        """Whether it is one of `held`."""
        return sentinel in self._held and now < self._held[sentinel].until

    def concerned(self) -> set[NodeId]:
        """The Sentinels of which something is held or was asked."""
        return self._held.keys() | self._asked.keys()

    def due(self, candidates: Iterable[Candidate], now: float) -> list[NodeId]:
        """The Sentinels to ask now, anew or again; each counts as asked from now on."""
        self._expire(now)
        known = {one.node: one for one in candidates}
        again = [
            node
            for node, held in self._held.items()
            if node not in self._asked and now >= held.renew_at(missed=node not in known)
        ]
        free = WANTED - len(self.concerned())
        chosen = [*again, *self._best(known.values(), free, now)]
        self._asked.update(dict.fromkeys(chosen, now))
        return chosen

    def _best(self, candidates: Iterable[Candidate], count: int, now: float) -> list[NodeId]:
        def rank(one: Candidate) -> tuple[bool, bool, float]:
            far = math.inf if one.round_trip is None else one.round_trip
            return one.node in self._failures, not one.bootstrap, far

        taken = self.concerned()
        fit = [one for one in candidates if one.node not in taken and not self._rests(one, now)]
        return [one.node for one in sorted(fit, key=rank)[: max(0, count)]]

    def _rests(self, one: Candidate, now: float) -> bool:
        failure = self._failures.get(one.node)
        return failure is not None and now < failure.rests_until

    def granted(self, sentinel: NodeId, seconds: float, now: float) -> bool:
        """It was reserved for so many seconds; False when that was not asked for."""
        if self._asked.pop(sentinel, None) is None:
            return False
        held = self._held.get(sentinel)
        since = now if held is None else held.since
        self._held[sentinel] = _Held(since, now, seconds)
        return True

    def ended(self, sentinel: NodeId, now: float) -> None:
        """It was refused or taken back, its link ended, or the Sentinel could not be asked."""
        held = self._held.pop(sentinel, None)
        if self._asked.pop(sentinel, None) is None and held is None:
            return
        last = self._failures.pop(sentinel, None)
        if held is not None and now - held.since >= STEADY_S:
            last = None
        times = 0 if last is None else last.times
        # The first time it may have been restarted, say; others come first all the same.
        rest = 0.0 if held is not None and last is None else REST_S * 2.0 ** min(times, 16)
        rest = min(rest, REST_LONGEST_S) * (0.75 + self._rng.random() / 2)
        self._failures[sentinel] = _Failure(now + rest, times + 1)
        forget_oldest(self._failures, MAX_REMEMBERED)

    def forget(self) -> None:
        """Hold none any more, and ask whoever is there next time."""
        self._held.clear()
        self._asked.clear()
        self._failures.clear()

    def _expire(self, now: float) -> None:
        late = [node for node, asked in self._asked.items() if now >= asked + ANSWER_S]
        past = [node for node, held in self._held.items() if now >= held.until]
        for node in dict.fromkeys((*late, *past)):
            self.ended(node, now)
        forgiven = [
            node
            for node, failure in self._failures.items()
            if now >= failure.rests_until + FORGIVEN_S
        ]
        for node in forgiven:
            del self._failures[node]

    def next_deadline(self, now: float) -> float:
        """When `due` is to be called again, monotonic; inf when nothing is under way.

        New candidates may come and known ones vanish any time: that is for the caller to see.
        """
        answers = (asked + ANSWER_S for asked in self._asked.values())
        ends = (held.until for held in self._held.values())
        renewals = (
            held.renew_at(missed=False)
            for node, held in self._held.items()
            if node not in self._asked
        )
        rests = (one.rests_until for one in self._failures.values() if now < one.rests_until)
        return min((*answers, *ends, *renewals, *rests), default=math.inf)
