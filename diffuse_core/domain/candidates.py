"""Candidates: Hosts a Route may lead through, and what a token costs there and on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diffuse_core.domain.coordinates import Coordinate, distance_s
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import Address, record_node
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from diffuse_core.domain.members import Member

UNKNOWN_RTT_S = 0.02
UNKNOWN_LAYER_S = 0.0005
LEAST_RTT_S = 0.0002
"""A hop costs something even on loopback; without it equal Hosts would be interleaved."""
SPREAD = 0.1
"""Hops and compute are stretched by up to this share, by chance."""
UNSURE = 0.5
"""The wait behind others' Sessions may be so much longer or shorter."""
ANSWER_TOKENS = 64
"""The Client's own link is passed once, not for every token; it counts as for such an answer."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Host that could run a Stage.

    `rtt_s` is the round trip in seconds from who asks for a Route, None when it does not know.
    `step_s` is what one decode step through its whole slice takes in seconds, 0 when unknown, and
    `wait_s` how long such steps wait for their turn. `sessions` is how many generations it runs;
    of these, `own` are those of the Client that asks, who knows of them for certain.
    """

    node: NodeId
    slice: Slice
    rtt_s: float | None = None
    step_s: float = 0.0
    wait_s: float = 0.0
    sessions: int = 0
    own: int = 0
    coordinate: Coordinate | None = None
    addresses: tuple[Address, ...] = ()

    def layer_s(self) -> float:
        """Seconds of compute per layer and token, estimated."""
        return self.step_s / len(self.slice) if self.step_s > 0 else UNKNOWN_LAYER_S

    def queue_s(self) -> float:
        """Seconds that a token waits for its turn, estimated.

        At worst each Session there has its pass first. What is measured counts if it is more:
        prompts are computed there, or it was more Sessions that waited. A Host that batches
        makes less of it; that nobody's share grows beyond the others' matters more.
        """
        return max(self.wait_s, self.sessions * self.layer_s() * len(self.slice))

    def client_s(self) -> float:
        """Seconds per token for the one way between the Client and this Host."""
        return _one_way(self.rtt_s) / ANSWER_TOKENS


class Toll(NamedTuple):
    """What one Route reckons with at a Host: seconds to wait, and per layer; hops `stretch`ed."""

    queue_s: float
    layer_s: float
    stretch: float


def tolls(candidates: Iterable[Candidate], rng: random.Random) -> dict[NodeId, Toll]:
    """What the Hosts cost, a little changed by chance, so that near-equal ones share the work.

    How many Sessions others run there was true seconds ago. Were it taken as it is, all who ask
    within these seconds would go to the same Host (Dahlin, "Interpreting stale load information",
    2000).
    """
    found: dict[NodeId, Toll] = {}
    for one in candidates:
        stretch = 1 + SPREAD * rng.random()
        doubt = UNSURE * rng.uniform(-1.0, 1.0)
        known = one.own / one.sessions if one.sessions else 0.0
        queue_s = one.queue_s() * (1 + doubt * (1 - min(1.0, known)))
        found[one.node] = Toll(queue_s, one.layer_s() * stretch, stretch)
    return found


def candidate_of(
    member: Member, sessions: int, asker: NodeId | None = None, own: int = 0
) -> Candidate:
    """A member that holds a Slice, as a candidate.

    Args:
        member: one of `coverage.holders`.
        sessions: how many it runs, as `OwnSessions.estimate` says.
        asker: the node that asks, where it is one.
        own: how many of these are the Client's own, as `OwnSessions.count` says.
    """
    record, node = member.record, record_node(member.record)
    if record.holding is None:
        raise ValueError("only who holds a slice is a candidate")
    rtt_s = member.distance_s if member.rtt_s is None else member.rtt_s
    return Candidate(
        node=node,
        slice=record.holding.slice,
        rtt_s=0.0 if node == asker else rtt_s,
        step_s=record.load.step_ms / 1000,
        wait_s=record.load.wait_ms / 1000,
        sessions=sessions,
        own=own,
        coordinate=record.coordinate,
        addresses=record.addresses,
    )


def hop_s(one: Candidate, other: Candidate, asker: NodeId | None) -> float:
    """Seconds that handing a token on from one to the other takes, estimated.

    What who asks has measured itself counts for its own hops, coordinates for all others.
    """
    rtt_s = None
    if one.node == asker:
        rtt_s = other.rtt_s
    elif other.node == asker:
        rtt_s = one.rtt_s
    if rtt_s is None and one.coordinate is not None and other.coordinate is not None:
        rtt_s = distance_s(one.coordinate, other.coordinate)
    return _one_way(rtt_s)


def _one_way(rtt_s: float | None) -> float:
    return max(UNKNOWN_RTT_S if rtt_s is None else rtt_s, LEAST_RTT_S) / 2
