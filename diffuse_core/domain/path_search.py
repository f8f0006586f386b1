"""Path search: the cheapest Stages among few Hosts, where a hop's cost depends on both its ends.

A shortest path over (Host, layers done). With the Hosts of a Route given, its cost is linear in
each layer where one hands over to the next; so that is best done where the one's Slice ends or
where the other's begins, and nothing else needs to be tried (but where hops of unknown length
make a detour look shorter).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.candidates import hop_s
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from diffuse_core.domain.candidates import Candidate, Toll
    from diffuse_core.domain.identity import NodeId


class _Leg(NamedTuple):
    """A Host runs the layers from `start` on, after what ran before; a bit of `seen` for each."""

    host: int
    start: int
    before: _Leg | None
    seen: int


class Path(NamedTuple):
    """A way through the layers, and the seconds that a token takes on it."""

    cost: float
    stages: tuple[tuple[Candidate, Slice], ...]


class _Turn(NamedTuple):
    """At some layer a Host may take over from others, for so much each."""

    host: int
    sources: list[tuple[int, float]]


class PathSearch:
    """All ways from layer `first` to `last` among some Hosts.

    Args:
        hosts: those to choose from.
        first: the first layer.
        last: the layer after the last one.
        costs: what each of them costs.
        asker: whose round trips the hosts' `rtt_s` are.
    """

    def __init__(
        self,
        hosts: Sequence[Candidate],
        first: int,
        last: int,
        costs: Mapping[NodeId, Toll],
        asker: NodeId | None,
    ) -> None:
        self.hosts = hosts
        self._first, self._last = first, last
        self._asker = asker
        mine = [costs[one.node] for one in hosts]
        self._stretch = [toll.stretch for toll in mine]
        self._enter = [toll.queue_s for toll in mine]
        self._layer = [toll.layer_s for toll in mine]
        self._starts = [max(first, one.slice.start) for one in hosts]
        self._ends = [min(last, one.slice.end) for one in hosts]
        edges = {*self._starts, *self._ends} - {first, last}
        self._turns = [(layer, self._turns_at(layer)) for layer in sorted(edges)]

    def firsts(self) -> list[int]:
        """The hosts that can begin."""
        return [host for host, start in enumerate(self._starts) if start == self._first]

    def hop(self, one: int, other: int) -> float:
        """What it costs that `one` hands over to `other`."""
        return self.from_outside(self.hosts[one], other)

    def from_outside(self, one: Candidate, host: int) -> float:
        """The same where the first is none of these."""
        return hop_s(one, self.hosts[host], self._asker) * self._stretch[host]

    def to_outside(self, host: int, one: Candidate) -> float:
        """The same where the second is none of these."""
        return hop_s(self.hosts[host], one, self._asker)

    def _turns_at(self, layer: int) -> list[_Turn]:
        starts, ends = self._starts, self._ends
        able = [i for i, end in enumerate(ends) if starts[i] < layer <= end]
        over = [i for i in able if ends[i] == layer]
        turns: list[_Turn] = []
        for host, start in enumerate(starts):
            sources = able if start == layer else over if start < layer < ends[host] else []
            if sources:
                turns.append(_Turn(host, [(one, self.hop(one, host)) for one in sources]))
        return turns

    def cheapest(
        self, begins: Sequence[tuple[int, float]], finish: Callable[[int], float]
    ) -> Path | None:
        """The cheapest way; None when there is none.

        Args:
            begins: hosts that may run the first layer, and what it costs to get there.
            finish: what it costs when that host runs the last one.
        """
        values = [math.inf] * len(self.hosts)
        legs: list[_Leg | None] = [None] * len(self.hosts)
        for host, cost in begins:
            # Costs without the layers: so it costs nothing to stay.
            values[host] = cost + self._enter[host] - self._layer[host] * self._first
            legs[host] = _Leg(host, self._first, None, 1 << host)
        for layer, turns in self._turns:
            for host, value, made in self._arrivals(layer, turns, values, legs):
                values[host], legs[host] = value, made
        best, last = math.inf, None
        for host, leg in enumerate(legs):
            if leg is not None and self._ends[host] == self._last:
                cost = values[host] + self._layer[host] * self._last + finish(host)
                if cost < best:
                    best, last = cost, leg
        return None if last is None else Path(best, self._stages(last))

    def _arrivals(
        self, layer: int, turns: list[_Turn], values: list[float], legs: list[_Leg | None]
    ) -> list[tuple[int, float, _Leg]]:
        """Hosts that it is cheaper to come to at this layer than to have stayed at."""
        costs = [
            value + per_layer * layer for value, per_layer in zip(values, self._layer, strict=True)
        ]
        found: list[tuple[int, float, _Leg]] = []
        for host, sources in turns:
            best = costs[host] - self._enter[host]
            cause: _Leg | None = None
            for one, hop in sources:
                if costs[one] + hop < best:
                    leg = legs[one]
                    # A node that ran before could have stayed: its slice spans what lies between.
                    if leg is not None and not leg.seen >> host & 1:
                        best, cause = costs[one] + hop, leg
            if cause is not None:
                value = best + self._enter[host] - self._layer[host] * layer
                found.append((host, value, _Leg(host, layer, cause, cause.seen | 1 << host)))
        return found

    def _stages(self, last: _Leg) -> tuple[tuple[Candidate, Slice], ...]:
        stages: list[tuple[Candidate, Slice]] = []
        leg: _Leg | None = last
        end = self._last
        while leg is not None:
            stages.append((self.hosts[leg.host], Slice(leg.start, end)))
            end, leg = leg.start, leg.before
        return tuple(stages[::-1])
