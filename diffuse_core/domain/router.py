"""The router: the cheapest Route through the Hosts that hold a model.

A shortest path over layer positions. After each layer the hidden state stays where it is, or hops
to another Host that holds the next layer; so overlapping Slices compose, and a Stage may be any
part of a Slice. Linear in the number of (Host, layer) pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import missing_text
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import MAX_STAGES
from diffuse_core.domain.records import Address
from diffuse_core.domain.slices import Slice, gaps
from diffuse_core.errors import ModelIncomplete

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence, Set

UNKNOWN_RTT_S = 0.02
UNKNOWN_LAYER_S = 0.0005
LEAST_HOP_S = 0.0002
"""A hop costs something even on loopback; without it equal Hosts would be interleaved."""
SPREAD = 0.1
"""Costs are stretched by up to this share, by chance, so that near-equal Hosts share the work."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Host that could run a Stage.

    `rtt_s` is the round trip to it in seconds, None when unmeasured. `step_s` is what one decode
    step through its whole slice takes in seconds, 0 when unknown. `sessions` is how many
    generations it already runs.
    """

    node: NodeId
    slice: Slice
    rtt_s: float | None = None
    step_s: float = 0.0
    sessions: int = 0
    addresses: tuple[Address, ...] = ()

    def hop_cost(self) -> float:
        """Seconds that handing the hidden state over to it takes, estimated."""
        return max(UNKNOWN_RTT_S if self.rtt_s is None else self.rtt_s, LEAST_HOP_S)

    def layer_cost(self) -> float:
        """Seconds per layer and token, estimated, with the wait behind its other Sessions."""
        own = self.step_s / len(self.slice) if self.step_s > 0 else UNKNOWN_LAYER_S
        return own * (1 + self.sessions)


class _Leg(msgspec.Struct, frozen=True):
    """The cheapest way found so far to have run the layers before some position."""

    cost: float
    candidate: Candidate
    start: int
    before: _Leg | None


def choose_route(
    total: int, candidates: Sequence[Candidate], avoid: Set[NodeId], rng: random.Random
) -> tuple[tuple[NodeId, Slice], ...]:
    """The Stages, in order, covering the layers 0..total exactly once; no node appears twice.

    Args:
        total: layers of the model.
        candidates: live, ready Hosts of it; equal inputs and rng state give an equal Route.
        avoid: nodes that failed lately, never chosen.
        rng: spreads the load over Hosts of about equal cost.

    Raises:
        ModelIncomplete: some range is held by none of the candidates; it is named.
    """
    usable = [one for one in candidates if one.node not in avoid and one.slice.end <= total]
    missing = gaps(total, (one.slice for one in usable))
    if missing:
        raise ModelIncomplete(f"{missing_text(total, missing)}; add a host or try again later")
    stretch = {one.node: 1 + SPREAD * rng.random() for one in sorted(usable, key=_by_node)}
    stages = _without_returns(_path(_cheapest(total, usable, stretch), total))
    if len(stages) > MAX_STAGES:
        raise ModelIncomplete(
            f"the model is split over {len(stages)} hosts in a row, more than the {MAX_STAGES} "
            "that a route may have; add a host that holds more layers"
        )
    return tuple((candidate.node, part) for candidate, part in stages)


def _by_node(candidate: Candidate) -> bytes:
    return candidate.node


def _cheapest(total: int, usable: Sequence[Candidate], stretch: dict[NodeId, float]) -> _Leg:
    starting: list[list[Candidate]] = [[] for _ in range(total)]
    for one in sorted(usable, key=_by_node):
        starting[one.slice.start].append(one)
    holding: list[Candidate] = []
    legs: dict[NodeId, _Leg] = {}
    best: _Leg | None = None
    for layer in range(total):
        holding = [one for one in holding if one.slice.end > layer] + starting[layer]
        legs = {
            one.node: _step(one, legs.get(one.node), best, layer, stretch[one.node])
            for one in holding
        }
        best = min(legs.values(), key=lambda leg: leg.cost)
    assert best is not None  # noqa: S101  (total is at least 1)
    return best


def _step(
    one: Candidate, staying: _Leg | None, best: _Leg | None, layer: int, stretch: float
) -> _Leg:
    arrive = (best.cost if best else 0.0) + one.hop_cost() * stretch
    compute = one.layer_cost() * stretch
    if staying is not None and staying.cost <= arrive:
        return _Leg(staying.cost + compute, one, staying.start, staying.before)
    return _Leg(arrive + compute, one, layer, best)


def _path(last: _Leg, total: int) -> list[tuple[Candidate, Slice]]:
    stages: list[tuple[Candidate, Slice]] = []
    leg: _Leg | None = last
    end = total
    while leg is not None:
        stages.append((leg.candidate, Slice(leg.start, end)))
        end, leg = leg.start, leg.before
    return stages[::-1]


def _without_returns(stages: list[tuple[Candidate, Slice]]) -> list[tuple[Candidate, Slice]]:
    """Merge a node's first and later stages into one: its slice spans what lies between."""
    kept: list[tuple[Candidate, Slice]] = []
    for candidate, part in stages:
        first = next((i for i, (one, _) in enumerate(kept) if one.node == candidate.node), None)
        if first is None:
            kept.append((candidate, part))
        else:
            kept[first:] = [(candidate, Slice(kept[first][1].start, part.end))]
    return kept
