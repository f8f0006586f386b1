"""Hosts of all kinds that a route may be chosen from, and what a route costs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from domain_samples import ordered
from hypothesis import strategies as st

from diffuse_core.domain.candidates import Candidate, hop_s
from diffuse_core.domain.coordinates import Coordinate
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId

    Stages = Sequence[tuple[NodeId, Slice]]


def place(*seconds: float, height: float = 0.0) -> Coordinate:
    """A coordinate at these seconds from the origin, by axis."""
    axes = [round(1e6 * one) for one in seconds] + [0] * (8 - len(seconds))
    return Coordinate(tuple(axes), round(1e6 * height), 6)


def some_candidates(
    total: int,
    *,
    most: int,
    farthest: float,
    slowest: float,
    busiest: int,
    least: int = 0,
    placed: bool = False,
) -> st.SearchStrategy[list[Candidate]]:
    """Lists of up to `most` candidates of a model of `total` layers; times in seconds.

    If they are `placed`, no detour is shorter than the way itself; unknown places may make it so.
    Then all sessions are the client's own, too, so that there is no doubt of their number.
    """
    far = st.floats(-farthest / 2, farthest / 2)
    places = st.builds(place, far, far)
    rows = st.lists(
        st.tuples(
            st.integers(0, total - 1),
            st.integers(1, total),
            st.one_of(st.none(), st.floats(0.0001, farthest)),
            st.floats(0, slowest),
            st.integers(0, busiest),
            places if placed else st.one_of(st.none(), places),
        ),
        min_size=least,
        max_size=most,
    )
    return rows.map(
        lambda rows: [
            Candidate(
                node=ordered(number),
                slice=Slice(start, min(total, start + length)),
                rtt_s=rtt,
                step_s=step,
                sessions=sessions,
                own=sessions if placed else 0,
                coordinate=coordinate,
            )
            for number, (start, length, rtt, step, sessions, coordinate) in enumerate(rows)
        ]
    )


def cost(
    route: Stages, known: dict[NodeId, Candidate], total: int, asker: NodeId | None = None
) -> float:
    """What a token costs on a whole ring, or on a part of it without the ways there and back."""
    hosts = [known[node] for node, _ in route]
    found = sum(
        one.queue_s() + len(part) * one.layer_s()
        for one, (_, part) in zip(hosts, route, strict=True)
    )
    found += sum(hop_s(one, other, asker) for one, other in itertools.pairwise(hosts))
    if (route[0][1].start, route[-1][1].end) == (0, total):
        found += hosts[0].client_s() + hosts[-1].client_s()
        if len(hosts) > 1:
            found += hop_s(hosts[-1], hosts[0], asker)
    return found


def all_routes(known: Sequence[Candidate], first: int, last: int) -> list[Stages]:
    """Every way to cover the layers first:last without using a node twice."""
    found: list[Stages] = []
    for one in known:
        if one.slice.start <= first < one.slice.end:
            others = [other for other in known if other is not one]
            for end in range(first + 1, min(last, one.slice.end) + 1):
                own = (one.node, Slice(first, end))
                rest = [()] if end == last else all_routes(others, end, last)
                found += [(own, *way) for way in rest]
    return found
