"""The lookout: when a Host that serves should move, found with patience.

A picture of the network may be stale, and the Host that everybody names may be unable to move:
so a finding must stand for several looks in a row before it is acted on, and who was named and
did not claim in time is passed over.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.healing import moves
from diffuse_core.domain.planner import HostSummary, Plan, bill
from diffuse_core.domain.rearranging import rearranged
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.healing import Move
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import HoldState
    from diffuse_core.domain.shapes import ModelShape

SMALL_NETWORK = 4
DOUBLINGS = 6


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take and are waited for, in seconds and looks.

    A gap is acted on after `patience` looks in a row that name us, a weak range after `calm`, a
    gap that only a rearrangement closes after `patience` and `calm` together. `drain_s` is for
    Sessions when a Host moves, `stop_s` when its process stops.
    """

    settle_s: float = 1.2
    look_s: float = 2.0
    patience: int = 3
    calm: int = 6
    drain_s: float = 30.0
    stop_s: float = 6.0
    cool_s: float = 30.0
    cool_after_claim_s: float = 6.0
    cool_after_failure_s: float = 300.0
    passed_s: float = 300.0
    claim_limit_s: float = 30.0
    load_limit_s: float = 900.0

    def settle_time(self, nodes: int) -> float:
        """How long a claim stands before it counts, in a network of so many nodes.

        News reach all after a time that grows with the logarithm of their number: 1.2 s for up
        to 4 nodes, 2.3 s for 200, 2.8 s for 1000.
        """
        return self.settle_s * (1 + math.log2(max(1, nodes / SMALL_NETWORK)) / DOUBLINGS)


class Finding(msgspec.Struct, frozen=True):
    """That we should move to the slice of `plan`.

    `gap`: nobody holds what it is for. `together`: it is part of a rearrangement, which makes
    sense only if the others move as well.
    """

    plan: Plan
    gap: bool
    together: bool = False


class Lookout:
    """What one Host that serves makes of the pictures it sees, one after the other."""

    def __init__(
        self,
        own: NodeId,
        shape: ModelShape,
        *,
        max_layers: int | None,
        target_replicas: int,
        pace: Pace,
    ) -> None:
        self._own = own
        self._shape = shape
        self._caps = {} if max_layers is None else {own: max_layers}
        self._target = target_replicas
        self._pace = pace
        self._seen: dict[NodeId, tuple[Slice, HoldState, float]] = {}
        self._named: dict[NodeId, float] = {}
        self._passed: dict[NodeId, float] = {}
        self._layout: dict[NodeId, Slice] = {}
        self._turns = 0
        self._gap = False
        self._stuck = 0
        self._rest_until = -math.inf
        self._rest_from_gaps_until = -math.inf

    def rest(self, until: float, *, gaps_too: bool = False) -> None:
        """Do not move to reinforce before `until`; nor into gaps, if so asked."""
        self._turns = self._stuck = 0
        self._rest_until = max(until, self._rest_until)
        if gaps_too:
            self._rest_from_gaps_until = max(until, self._rest_from_gaps_until)

    def fresh(self, others: Sequence[HostSummary], now: float) -> list[HostSummary]:
        """The Hosts to reckon with: not those that claim or load one slice for far too long."""
        seen: dict[NodeId, tuple[Slice, HoldState, float]] = {}
        for one in others:
            last = self._seen.get(one.node)
            same = last is not None and last[:2] == (one.slice, one.state)
            seen[one.node] = last if last and same else (one.slice, one.state, now)
        self._seen = seen
        limits = {"claiming": self._pace.claim_limit_s, "loading": self._pace.load_limit_s}
        return [one for one in others if now - seen[one.node][2] < limits.get(one.state, math.inf)]

    def look(
        self,
        others: Sequence[HostSummary],
        part: Slice,
        capacity: int,
        now: float,
        settle_s: float,
    ) -> Finding | None:
        """Where to move now, or None: stay, or wait and look again.

        Args:
            others: the other Hosts of the model, as `fresh` gave them.
            part: the slice that we serve.
            capacity: what we can hold, bytes.
            now: monotonic seconds.
            settle_s: how long news take to reach everybody.
        """
        hosts = [*others, HostSummary(self._own, part, "ready", capacity)]
        self._passed = {node: until for node, until in self._passed.items() if until > now}
        named = moves(
            hosts,
            self._shape,
            target_replicas=self._target,
            passed=self._passed.keys() - {self._own},
            caps=self._caps,
        )
        self._pass_over(named, now, settle_s)
        mine = next((move for move in named if move.node == self._own), None)
        if mine is not None:
            return self._move(mine, now)
        self._turns = 0
        return None if named else self._rearrange(hosts, capacity, now)

    def alone(self, others: Sequence[HostSummary], now: float) -> None:
        """A rearrangement came to nothing: pass over those that did not take part."""
        held = {one.node: one.slice for one in others}
        for node, part in self._layout.items():
            if node != self._own and held.get(node) != part:
                self._passed[node] = now + self._pace.passed_s
        self._layout = {}

    def _move(self, mine: Move, now: float) -> Finding | None:
        self._turns = self._turns + 1 if mine.gap == self._gap else 1
        self._gap = mine.gap
        patience = self._pace.patience if mine.gap else self._pace.calm
        until = self._rest_from_gaps_until if mine.gap else self._rest_until
        if self._turns < patience or now < until:
            return None
        self._turns = 0
        return Finding(mine.plan, mine.gap)

    def _pass_over(self, named: Sequence[Move], now: float, settle_s: float) -> None:
        """Give each of the named the time that an honest Host needs, and no more."""
        self._named = {move.node: self._named.get(move.node, now) for move in named}
        for move in named:
            looks = (self._pace.patience if move.gap else self._pace.calm) + 2
            late = now - self._named[move.node] > looks * self._pace.look_s + settle_s
            if late and move.node != self._own:
                self._passed[move.node] = now + self._pace.passed_s

    def _rearrange(
        self, hosts: Sequence[HostSummary], capacity: int, now: float
    ) -> Finding | None:
        counts = replicas_per_layer(self._shape.layers, (host.slice for host in hosts))
        self._stuck = self._stuck + 1 if min(counts) == 0 else 0
        patience = self._pace.patience + self._pace.calm
        if self._stuck < patience or now < self._rest_from_gaps_until:
            return None
        self._stuck = 0
        passed = self._passed.keys() - {self._own}
        self._layout = rearranged(hosts, self._shape, passed=passed, caps=self._caps)
        part = self._layout.get(self._own)
        if part is None:
            return None
        reason = f"rearranges with {len(self._layout) - 1} others, so that every layer is held"
        return Finding(
            Plan(part, reason, bill(part, self._shape, capacity)), gap=True, together=True
        )
