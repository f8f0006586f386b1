"""The router when Stages of a Route are lost: the others stay, the gaps are filled near by."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st
from routing_samples import all_routes, cost, place, some_candidates

from diffuse_core.domain.candidates import SPREAD, Candidate, hop_s
from diffuse_core.domain.router import choose_route, refill_route
from diffuse_core.domain.slices import Slice, gaps
from diffuse_core.errors import ModelIncomplete

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

    Stages = tuple[tuple[NodeId, Slice], ...]

TOTAL = 12


def _rng(seed: int = 1) -> random.Random:
    return random.Random(seed)


def _candidate(number: int, start: int, end: int, where: float | None = None) -> Candidate:
    coordinate = None if where is None else place(where)
    return Candidate(node=ordered(number), slice=Slice(start, end), coordinate=coordinate)


def _route(*stages: tuple[int, int, int]) -> Stages:
    return tuple((ordered(number), Slice(start, end)) for number, start, end in stages)


@given(
    some_candidates(6, most=6, farthest=0.2, slowest=0.1, busiest=3, least=2, placed=True),
    st.integers(0, 4),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_the_cheapest_way_between_two_stages(
    known: list[Candidate], first: int, length: int, seed: int
) -> None:
    last = min(6, first + length)
    before, after = known[0], known[1]
    able = known[2:]
    arguments = {"first": first, "last": last, "before": before.node, "after": after.node}
    ways = all_routes(able, first, last)
    if not ways:
        with pytest.raises(ModelIncomplete):
            choose_route(6, known, set(), _rng(seed), **arguments)
        return
    by_node = {one.node: one for one in known}

    def whole(way: Stages) -> float:
        ends = hop_s(before, by_node[way[0][0]], None), hop_s(by_node[way[-1][0]], after, None)
        inner = cost(way, by_node, total=99)
        return inner + sum(ends)

    way = choose_route(6, known, set(), _rng(seed), **arguments)
    assert (way[0][1].start, way[-1][1].end) == (first, last)
    assert whole(way) <= min(map(whole, ways)) * (1 + SPREAD) + 1e-9


@given(
    some_candidates(TOTAL, most=12, farthest=0.2, slowest=0.1, busiest=3),
    st.sets(st.integers(0, 5), min_size=1),
    st.integers(0, 99),
)
def test_who_is_left_keeps_its_part_and_the_lost_are_not_taken(
    known: list[Candidate], lost: set[int], seed: int
) -> None:
    try:
        old = choose_route(TOTAL, known, set(), _rng(seed))
    except ModelIncomplete:
        return
    gone = {node for index, (node, _) in enumerate(old) if index in lost}
    kept = [stage for stage in old if stage[0] not in gone]
    try:
        new = refill_route(TOTAL, known, gone, _rng(seed), kept)
    except ModelIncomplete:
        return
    edges = [part.start for _, part in new] + [TOTAL]
    assert edges[0] == 0
    assert [part.end for _, part in new] == edges[1:]
    assert len({node for node, _ in new}) == len(new)
    assert not gone & {node for node, _ in new}
    assert set(kept) <= set(new)


def test_a_gap_is_filled_near_its_neighbours_on_the_ring() -> None:
    known = [
        _candidate(1, 0, 6, 0.0),
        _candidate(2, 6, 12, 0.0),
        _candidate(3, 0, 6, 0.1),
        _candidate(4, 0, 6, 0.01),
    ]
    kept = _route((2, 6, 12))
    assert refill_route(TOTAL, known, {ordered(1)}, _rng(), kept)[0] == (ordered(4), Slice(0, 6))


def test_a_gap_may_be_filled_by_several() -> None:
    known = [_candidate(1, 0, 4), _candidate(5, 4, 7), _candidate(6, 7, 12)]
    assert refill_route(TOTAL, known, set(), _rng(), _route((1, 0, 4))) == _route(
        (1, 0, 4), (5, 4, 7), (6, 7, 12)
    )


def test_the_range_that_has_but_one_host_left_gets_it() -> None:
    """Host 5 would do for both; host 6 only for the first, and it is far away."""
    known = [
        _candidate(1, 4, 8, 0.0),
        _candidate(5, 0, 12, 0.0),
        _candidate(6, 0, 4, 0.2),
    ]
    assert refill_route(TOTAL, known, set(), _rng(), _route((1, 4, 8))) == _route(
        (6, 0, 4), (1, 4, 8), (5, 8, 12)
    )


def test_one_host_cannot_fill_two_ranges() -> None:
    known = [_candidate(1, 4, 8), _candidate(5, 0, 12)]
    with pytest.raises(ModelIncomplete, match="layers 0:4, 8:12 of 12 need more hosts"):
        refill_route(TOTAL, known, set(), _rng(), _route((1, 4, 8)))


def test_who_has_a_stage_gets_no_other_and_the_range_is_named() -> None:
    known = [_candidate(1, 0, 12), _candidate(2, 0, 12)]
    with pytest.raises(ModelIncomplete, match="layers 6:12 of 12 are held by no live node"):
        refill_route(TOTAL, known, {ordered(2)}, _rng(), _route((1, 0, 6)))
    with pytest.raises(ModelIncomplete, match="layers 6:9 of 12 are held by no live node"):
        choose_route(TOTAL, known[:1], {ordered(1)}, _rng(), first=6, last=9)


def test_when_nobody_is_left_it_is_a_new_route() -> None:
    known = [_candidate(1, 0, 12), _candidate(2, 0, 12)]
    assert refill_route(TOTAL, known, {ordered(1)}, _rng(), ()) == _route((2, 0, 12))


def test_neighbours_that_are_lost_themselves_or_unknown_count_as_nothing() -> None:
    known = [_candidate(2, 0, 4, 0.0), _candidate(3, 8, 12, 0.0), _candidate(4, 8, 12, 0.1)]
    whole = refill_route(TOTAL, known, set(), _rng(), _route((1, 4, 8)))
    assert whole == _route((2, 0, 4), (1, 4, 8), (3, 8, 12))
    assert not gaps(TOTAL, [part for _, part in whole])


def test_where_nothing_is_lost_the_route_stays() -> None:
    kept = _route((1, 0, 4), (2, 4, TOTAL))
    assert refill_route(TOTAL, [], set(), _rng(), kept) == kept
