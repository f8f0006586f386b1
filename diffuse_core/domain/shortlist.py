"""Shortlists: the few of many Hosts among which the cheapest Route is looked for.

Every layer keeps the same number of holders, as far as it has them: those that are cheap and near
to one place. The best Route is all near to some place, so a few places are tried: those of Hosts
drawn at random, of which most lie where most Hosts are. (Places far apart would be those of
outliers, and of liars.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.candidates import hop_s

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from diffuse_core.domain.candidates import Candidate, Toll
    from diffuse_core.domain.identity import NodeId

FEW = 24
"""So many Hosts are all looked at."""
PER_LAYER = 5
PLACES = 5


def shortlists(
    hosts: Sequence[Candidate],
    first: int,
    last: int,
    costs: Mapping[NodeId, Toll],
    near: Sequence[Candidate],
    asker: NodeId | None,
    rng: random.Random,
) -> Iterator[list[Candidate]]:
    """Lists of Hosts that together hold all layers first:last that `hosts` hold.

    Args:
        hosts: all of them, in an order that does not depend on chance.
        first: the first layer.
        last: the layer after the last one.
        costs: what each of them costs.
        near: those that the Route is to be near to; when there are none, places are drawn.
        asker: whose round trips the hosts' `rtt_s` are.
        rng: draws the places.
    """
    if len(hosts) <= FEW:
        yield list(hosts)
        return
    own = [
        (costs[one.node].queue_s, costs[one.node].layer_s, _length(one, first, last))
        for one in hosts
    ]
    for place in near or _places(hosts, own, rng):
        scores = [
            (hop_s(place, one, asker) + queue) / length + layer
            for one, (queue, layer, length) in zip(hosts, own, strict=True)
        ]
        yield _best(hosts, scores, first, last)


def _length(one: Candidate, first: int, last: int) -> int:
    return min(last, one.slice.end) - max(first, one.slice.start)


def _places(
    hosts: Sequence[Candidate], own: list[tuple[float, float, int]], rng: random.Random
) -> list[Candidate]:
    """That of the cheapest Host, and of some others."""
    cheapest = min(
        range(len(hosts)), key=lambda index: own[index][0] / own[index][2] + own[index][1]
    )
    return [hosts[cheapest], *rng.sample(hosts, PLACES - 1)]


def _best(
    hosts: Sequence[Candidate], scores: list[float], first: int, last: int
) -> list[Candidate]:
    """In order of their scores, all that hold a layer which has too few so far."""
    counts = [0] * (last - first)
    kept: list[Candidate] = []
    for index in sorted(range(len(hosts)), key=scores.__getitem__):
        one = hosts[index]
        start, end = max(first, one.slice.start) - first, min(last, one.slice.end) - first
        held = counts[start:end]
        if min(held) < PER_LAYER:
            counts[start:end] = [count + 1 for count in held]
            kept.append(one)
    return kept
