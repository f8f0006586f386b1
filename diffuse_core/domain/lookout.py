"""The lookout: when a Host that serves should move, found with patience.

A picture of the network may be stale, and the Host that everybody names may be unable to move:
so a finding must stand for several looks in a row before it is acted on. Who was named and did
not claim in time is passed over, for longer each time, and then more Hosts are named at once: so
any number of Hosts that only pretend to be there delay healing by a few minutes at most.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.healing import MOST_STANDBYS, moves
from diffuse_core.domain.planner import HostSummary, Plan, bill
from diffuse_core.domain.rearranging import rearranged
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.healing import Move
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.shapes import ModelShape

SMALL_NETWORK = 4
DOUBLINGS = 6
MAX_PASSED_S = 4 * 3600.0
"""Longest time that a Host is passed over for."""
MAX_KNOWN = 4096
"""Hosts that were passed over or are not ready that one remembers."""


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


class _Unready(msgspec.Struct):
    """Since when a Host was never ready, since when it claims, and when it was last seen."""

    since: float
    claiming_since: float | None
    seen: float


class _Passed(msgspec.Struct, frozen=True):
    """Until when a Host is passed over, and for how long that is."""

    until: float
    pause: float


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
        self._unready: dict[NodeId, _Unready] = {}
        self._named: dict[NodeId, float] = {}
        self._passed: dict[NodeId, _Passed] = {}
        self._standbys = 0
        self._more_at = -math.inf
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
        """The Hosts to reckon with: not those that have long not been ready.

        A claim counts for a short time, and claims and loads together for `load_limit_s`, whatever
        slice they name; a Host that was not ready by then counts again when it is. One that is
        away in between is remembered for as long.
        """
        for one in others:
            if one.state == "ready":
                self._unready.pop(one.node, None)
                continue
            last = self._unready.pop(one.node, None)
            if last is None or now - last.seen > self._pace.load_limit_s:
                last = _Unready(now, None, now)
            last.seen = now
            if one.state != "claiming":
                last.claiming_since = None
            elif last.claiming_since is None:
                last.claiming_since = now
            self._unready[one.node] = last
        forget_oldest(self._unready, MAX_KNOWN)
        return [one for one in others if self._counts(one.node, now)]

    def _counts(self, node: NodeId, now: float) -> bool:
        known = self._unready.get(node)
        if known is None:
            return True
        claims_s = 0.0 if known.claiming_since is None else now - known.claiming_since
        unready_s = now - known.since
        return claims_s < self._pace.claim_limit_s and unready_s < self._pace.load_limit_s

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
        named = moves(
            hosts,
            self._shape,
            target_replicas=self._target,
            passed=self._passed_over(now),
            caps=self._caps,
            standbys=self._standbys,
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
                self._pass(node, now)
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
        if not named:
            self._standbys = 0
        for move in named:
            looks = (self._pace.patience if move.gap else self._pace.calm) + 2
            wait = looks * self._pace.look_s + settle_s
            if move.node == self._own or now - self._named[move.node] <= wait:
                continue
            self._pass(move.node, now)
            if now >= self._more_at:
                self._standbys = min(2 * self._standbys + 1, MOST_STANDBYS)
                self._more_at = now + wait

    def _pass(self, node: NodeId, now: float) -> None:
        """Pass over a Host; for twice as long as the last time."""
        last = self._passed.pop(node, None)
        pause = self._pace.passed_s if last is None else min(2 * last.pause, MAX_PASSED_S)
        self._passed[node] = _Passed(now + pause, pause)
        forget_oldest(self._passed, MAX_KNOWN)

    def _passed_over(self, now: float) -> set[NodeId]:
        return {
            node for node, one in self._passed.items() if one.until > now and node != self._own
        }

    def _rearrange(
        self, hosts: Sequence[HostSummary], capacity: int, now: float
    ) -> Finding | None:
        counts = replicas_per_layer(self._shape.layers, (host.slice for host in hosts))
        self._stuck = self._stuck + 1 if min(counts) == 0 else 0
        patience = self._pace.patience + self._pace.calm
        if self._stuck < patience or now < self._rest_from_gaps_until:
            return None
        self._stuck = 0
        self._layout = rearranged(
            hosts, self._shape, passed=self._passed_over(now), caps=self._caps
        )
        part = self._layout.get(self._own)
        if part is None:
            return None
        reason = f"rearranges with {len(self._layout) - 1} others, so that every layer is held"
        return Finding(
            Plan(part, reason, bill(part, self._shape, capacity)), gap=True, together=True
        )
