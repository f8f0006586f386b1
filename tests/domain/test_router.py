"""The router: every layer exactly once, at about the least cost, or a clear refusal."""

from __future__ import annotations

import itertools
import random

import pytest
from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st
from routing_samples import all_routes, cost, place, some_candidates

from diffuse_core.domain.candidates import SPREAD, UNSURE, Candidate, tolls
from diffuse_core.domain.messages import MAX_STAGES
from diffuse_core.domain.router import choose_route
from diffuse_core.domain.slices import Slice, gaps
from diffuse_core.errors import ModelIncomplete

TOTAL = 12


def _rng(seed: int = 1) -> random.Random:
    return random.Random(seed)


def _candidate(number: int, start: int, end: int, **figures: float) -> Candidate:
    return Candidate(node=ordered(number), slice=Slice(start, end), **figures)


candidates = some_candidates(TOTAL, most=8, farthest=0.2, slowest=0.1, busiest=4)


@given(candidates, st.integers(0, 100))
def test_covers_exactly_once_or_names_the_gap(known: list[Candidate], seed: int) -> None:
    missing = gaps(TOTAL, [one.slice for one in known])
    if missing:
        with pytest.raises(ModelIncomplete, match=str(missing[0])):
            choose_route(TOTAL, known, set(), _rng(seed))
        return
    route = choose_route(TOTAL, known, set(), _rng(seed))
    by_node = {one.node: one for one in known}
    assert route[0][1].start == 0
    assert route[-1][1].end == TOTAL
    assert all(a[1].end == b[1].start for a, b in itertools.pairwise(route))
    assert all(by_node[node].slice.contains(part) for node, part in route)
    assert len({node for node, _ in route}) == len(route)


small = some_candidates(6, most=5, farthest=0.2, slowest=0.1, busiest=4, placed=True)


@given(small, st.integers(0, 100))
def test_is_cheapest_but_for_the_spread(known: list[Candidate], seed: int) -> None:
    if gaps(6, [one.slice for one in known]):
        return
    by_node = {one.node: one for one in known}
    route = choose_route(6, known, set(), _rng(seed))
    least = min(cost(one, by_node, 6) for one in all_routes(known, 0, 6))
    assert cost(route, by_node, 6) <= least * (1 + SPREAD) + 1e-9


@given(candidates, st.integers(0, 100), st.randoms())
def test_equal_input_gives_an_equal_route(
    known: list[Candidate], seed: int, shuffler: random.Random
) -> None:
    if gaps(TOTAL, [one.slice for one in known]):
        return
    shuffled = list(known)
    shuffler.shuffle(shuffled)
    assert choose_route(TOTAL, known, set(), _rng(seed)) == choose_route(
        TOTAL, shuffled, set(), _rng(seed)
    )


def test_equal_hosts_share_the_work() -> None:
    known = [_candidate(number, 0, TOTAL) for number in range(4)]
    rng = _rng()
    chosen = {choose_route(TOTAL, known, set(), rng)[0][0] for _ in range(100)}
    assert len(chosen) == 4


def test_a_busy_or_distant_host_is_passed_over() -> None:
    known = [
        _candidate(1, 0, 12, rtt_s=0.001, step_s=0.012, sessions=5),
        _candidate(2, 0, 12, rtt_s=0.001, step_s=0.012),
        _candidate(3, 0, 12, rtt_s=0.5, step_s=0.012),
    ]
    assert choose_route(TOTAL, known, set(), _rng()) == ((ordered(2), Slice(0, 12)),)


def test_one_host_of_all_beats_many_stages() -> None:
    known = [_candidate(1, 0, 6), _candidate(2, 6, 12), _candidate(3, 0, 12)]
    assert choose_route(TOTAL, known, set(), _rng()) == ((ordered(3), Slice(0, 12)),)


def test_overlapping_slices_compose_at_the_better_host() -> None:
    known = [
        _candidate(1, 0, 8, step_s=0.08),
        _candidate(2, 4, 12, step_s=0.008),
    ]
    route = choose_route(TOTAL, known, set(), _rng())
    assert route == ((ordered(1), Slice(0, 4)), (ordered(2), Slice(4, 12)))


def test_a_node_is_never_visited_twice() -> None:
    known = [
        _candidate(1, 0, 12, step_s=12.0),
        _candidate(2, 4, 8, step_s=0.004),
    ]
    assert choose_route(TOTAL, known, set(), _rng()) == ((ordered(1), Slice(0, 12)),)


def test_the_ring_closes_where_it_is_short() -> None:
    """From the client both ends look equally far, and so do all hops but the closing one."""
    known = [
        _candidate(1, 0, 4, coordinate=place(0.0), step_s=0.004),
        _candidate(2, 4, 8, coordinate=place(0.04), step_s=0.004),
        _candidate(3, 8, 12, coordinate=place(0.08), step_s=0.004),
        _candidate(4, 8, 12, coordinate=place(0.02, 0.0346), step_s=0.004),
    ]
    assert [node for node, _ in choose_route(TOTAL, known, set(), _rng())][-1] == ordered(4)


def test_hosts_near_to_each_other_are_taken_together() -> None:
    known = [
        _candidate(10 * town + part, 4 * part, 4 * part + 4, coordinate=place(0.1 * town))
        for town in range(4)
        for part in range(3)
    ]
    for seed in range(20):
        route = choose_route(TOTAL, known, set(), _rng(seed))
        assert len({node[0] // 10 for node, _ in route}) == 1


def test_what_the_asker_measured_counts_for_its_own_hops() -> None:
    known = [
        _candidate(1, 0, 6, coordinate=place(0.0)),
        _candidate(2, 6, 12, coordinate=place(0.0), rtt_s=0.2),
        _candidate(3, 6, 12, coordinate=place(0.05), rtt_s=0.001),
    ]
    assert choose_route(TOTAL, known, set(), _rng())[1][0] == ordered(2)
    assert choose_route(TOTAL, known, set(), _rng(), asker=ordered(1))[1][0] == ordered(3)


def test_a_queue_that_was_measured_counts_more_than_few_sessions() -> None:
    known = [
        _candidate(1, 0, 12, step_s=0.01, sessions=1, wait_s=0.2),
        _candidate(2, 0, 12, step_s=0.01, sessions=3),
    ]
    assert choose_route(TOTAL, known, set(), _rng())[0][0] == ordered(2)


def test_failed_nodes_are_avoided_even_if_nothing_is_left() -> None:
    known = [_candidate(1, 0, 12), _candidate(2, 0, 12), _candidate(3, 0, 6)]
    assert choose_route(TOTAL, known, {ordered(1)}, _rng())[0][0] == ordered(2)
    with pytest.raises(ModelIncomplete, match=r"layers 6:12 of 12 are held by no live node"):
        choose_route(TOTAL, known, {ordered(1), ordered(2)}, _rng())


def test_slices_beyond_the_model_do_not_count() -> None:
    with pytest.raises(ModelIncomplete, match="0:12 of 12"):
        choose_route(TOTAL, [_candidate(1, 0, 13)], set(), _rng())


def test_a_route_longer_than_the_wire_allows_is_refused() -> None:
    total = MAX_STAGES + 1
    known = [_candidate(layer, layer, layer + 1) for layer in range(total)]
    with pytest.raises(ModelIncomplete, match=f"{total} hosts in a row"):
        choose_route(total, known, set(), _rng())


def test_others_sessions_are_taken_with_a_grain_of_salt_and_own_ones_as_they_are() -> None:
    others = _candidate(1, 0, TOTAL, step_s=0.01, sessions=4)
    half = _candidate(2, 0, TOTAL, step_s=0.01, sessions=4, own=2)
    ours = _candidate(3, 0, TOTAL, step_s=0.01, sessions=4, own=9)
    found = [tolls([others, half, ours], _rng(seed)) for seed in range(200)]
    for one, doubt in ((others, UNSURE), (half, UNSURE / 2), (ours, 0.0)):
        waits = [cost[one.node].queue_s / 0.04 for cost in found]
        assert min(waits) == pytest.approx(1 - doubt, abs=0.02)
        assert max(waits) == pytest.approx(1 + doubt, abs=0.02)
