"""Reservations: at which Sentinels to be reachable through, when to renew, when to move.

A node that cannot be dialled keeps a reservation at WANTED different Sentinels. Each hangs on one
link, ends with it, and is renewed long before its time is up, which also finds a Sentinel that
fell silent. Where one ends the next best Sentinel takes its place; one that refuses or fails is
left alone for a while, the longer the more often that happened. As long as none is held nobody
reaches this node, so then the rests are short: most of all after a lost link, which is as often
the fault of our own line.
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
LOST_LONGEST_S = 2.0
"""The longest rest after a lost link while none is held."""
BARE_LONGEST_S = 10.0
"""Likewise after a refusal, or when the Sentinel could not be asked."""
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
    bare_until: float
    """Likewise, as long as none is held."""
    times: int = 0
    """How often in a row it refused or could not be asked."""
    lost: int = 0
    """How often in a row its link ended soon."""


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
        bare = not self.held(now)
        fit = [
            one
            for one in candidates
            if one.node not in taken and now >= self._rests_until(one.node, bare=bare)
        ]
        return [one.node for one in sorted(fit, key=rank)[: max(0, count)]]

    def _rests_until(self, sentinel: NodeId, *, bare: bool) -> float:
        failure = self._failures.get(sentinel)
        if failure is None:
            return -math.inf
        return failure.bare_until if bare else failure.rests_until

    def granted(self, sentinel: NodeId, seconds: float, now: float) -> bool:
        """It was reserved for so many seconds; False when that was not asked for."""
        if self._asked.pop(sentinel, None) is None:
            return False
        held = self._held.get(sentinel)
        since = now if held is None else held.since
        self._held[sentinel] = _Held(since, now, seconds)
        return True

    def ended(self, sentinel: NodeId, now: float) -> None:
        """The link that it hangs on, or was asked for over, ended."""
        held = self._held.get(sentinel)
        if held is None:
            self.refused(sentinel, now)
            return
        last = self._give_up(sentinel, now)
        lost = 0 if last is None else last.lost
        rest = 0.0 if last is None else min(REST_S * 2.0 ** min(lost, 16), REST_LONGEST_S)
        self._failed(sentinel, now, rest, LOST_LONGEST_S, lost=lost + 1)
        if not self.held(now):
            # All at once: that was our own line, and none of them is to blame.
            for failure in self._failures.values():
                if failure.lost:
                    failure.rests_until = min(failure.rests_until, failure.bare_until)

    def refused(self, sentinel: NodeId, now: float, rest: float = 0.0) -> None:
        """It was refused or taken back, is of no use, or the Sentinel could not be asked.

        Args:
            sentinel: who refused.
            now: monotonic seconds.
            rest: seconds that it is to be left alone for at least, while another one is held.
        """
        held = self._held.get(sentinel)
        if held is None and sentinel not in self._asked:
            return
        last = self._give_up(sentinel, now)
        times = 0 if last is None else last.times
        # The first time it may have been restarted, say; others come first all the same.
        again = 0.0 if held is not None and last is None else REST_S * 2.0 ** min(times, 16)
        rest = max(rest, min(again, REST_LONGEST_S))
        self._failed(sentinel, now, rest, BARE_LONGEST_S, times=times + 1)

    def _give_up(self, sentinel: NodeId, now: float) -> _Failure | None:
        """Hold it no more; what it did before, unless it was held for long since."""
        held = self._held.pop(sentinel, None)
        self._asked.pop(sentinel, None)
        last = self._failures.pop(sentinel, None)
        return None if held is not None and now - held.since >= STEADY_S else last

    def _failed(
        self,
        sentinel: NodeId,
        now: float,
        rest: float,
        bare_longest: float,
        *,
        times: int = 0,
        lost: int = 0,
    ) -> None:
        spread = 0.75 + self._rng.random() / 2
        self._failures[sentinel] = _Failure(
            now + rest * spread, now + min(rest, bare_longest) * spread, times, lost
        )
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
            self.refused(node, now)
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
        bare = not self.held(now)
        rests = (self._rests_until(node, bare=bare) for node in self._failures)
        asking = (at for at in rests if now < at)
        return min((*answers, *ends, *renewals, *asking), default=math.inf)
