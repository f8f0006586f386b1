"""Claims: of those who want the same exactly one stands, whoever looks."""

from __future__ import annotations

import itertools
import random

import pytest
from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st
from placement_samples import TEN, host

from diffuse_core.domain.claims import foreseen, settle
from diffuse_core.domain.planner import plan
from diffuse_core.domain.slices import Slice, gaps


def test_of_two_equal_claims_exactly_the_lower_id_stands() -> None:
    claim = Slice(0, 11)
    assert settle(ordered(1), claim, [(ordered(2), claim, "claiming")], counted=())
    assert not settle(ordered(2), claim, [(ordered(1), claim, "claiming")], counted=())


@pytest.mark.parametrize("state", ["loading", "ready"])
def test_a_new_holder_beats_a_claim_whatever_the_ids(state: str) -> None:
    assert not settle(ordered(1), Slice(0, 11), [(ordered(2), Slice(10, 12), state)], counted=())


def test_who_was_counted_in_the_plan_is_no_rival() -> None:
    others = [(ordered(1), Slice(0, 10), "ready"), (ordered(2), Slice(0, 10), "claiming")]
    assert settle(ordered(3), Slice(0, 10), others, counted=[Slice(0, 10)] * 2)
    assert not settle(ordered(3), Slice(0, 10), others, counted=[Slice(0, 10)])


def test_overlap_beside_the_lacking_layers_is_no_conflict() -> None:
    others = [(ordered(1), Slice(0, 5), "ready"), (ordered(2), Slice(0, 3), "loading")]
    assert settle(ordered(3), Slice(2, 10), others, counted=[Slice(0, 5)])


def test_a_rival_that_loses_itself_does_not_count() -> None:
    others = [(ordered(1), Slice(0, 5), "claiming"), (ordered(2), Slice(4, 9), "claiming")]
    assert settle(ordered(3), Slice(6, 10), others, counted=())
    assert not settle(ordered(2), Slice(4, 9), others[:1], counted=())


def test_without_a_plan_the_ready_ones_are_taken_as_counted() -> None:
    others = [(ordered(1), Slice(0, 10), "ready")]
    assert settle(ordered(3), Slice(0, 10), others)
    assert not settle(ordered(3), Slice(0, 10), [(ordered(1), Slice(0, 10), "loading")])


def test_leaving_hosts_are_no_rivals() -> None:
    assert settle(ordered(3), Slice(0, 5), [(ordered(1), Slice(0, 5), "leaving")], counted=())


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_hosts_that_start_at_once_agree_in_a_few_rounds(count: int, seed: int) -> None:
    rng = random.Random(seed)
    capacity = {ordered(i): rng.choice([400, 600, 800, 1600]) for i in range(count)}
    plans = {me: plan(capacity[me], TEN, [], own=me) for me in capacity}
    loading: dict[object, Slice] = {}
    for _ in range(count + 1):
        claims = dict(plans)
        for me, claim in claims.items():
            others = [(one, part, "loading") for one, part in loading.items()]
            others += [(one, p.slice, "claiming") for one, p in claims.items() if one != me]
            if settle(me, claim.slice, others, counted=claim.counted):
                loading[me] = claim.slice
                del plans[me]
        for me in plans:
            plans[me] = plan(capacity[me], TEN, list(loading.values()), own=me)
    assert not plans
    apart = [
        (a, b)
        for a, b in itertools.combinations(loading.values(), 2)
        if a == b and gaps(10, loading.values())
    ]
    assert not apart


@given(st.permutations(range(5)), st.integers(0, 6), st.integers(1, 4))
def test_of_equal_claims_exactly_one_stands_whatever_the_order(
    order: list[int], start: int, length: int
) -> None:
    claim = Slice(start, start + length)
    told = [(ordered(number), claim, "claiming") for number in order]
    stand = [
        one
        for one, _, _ in told
        if settle(one, claim, [t for t in told if t[0] != one], counted=())
    ]
    assert stand == [ordered(0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=6))
def test_the_lowest_id_of_those_that_claim_always_stands(pairs: list[tuple[int, int]]) -> None:
    parts = [Slice(start, min(10, start + length)) for start, length in pairs]
    told = [(ordered(number), part, "claiming") for number, part in enumerate(parts)]
    assert settle(ordered(0), parts[0], told[1:], counted=())


# --- what a loser reckons with -------------------------------------------------------------


def test_losers_plan_one_after_the_other_without_waiting() -> None:
    """Many that want the same at once agree in two rounds."""
    ids = [ordered(number) for number in range(8)]
    first = {me: plan(250, TEN, [], own=me) for me in ids}
    hosts = [host(number, 4, 6, "claiming", 250) for number in range(8)]
    assert {made.slice for made in first.values()} == {Slice(4, 6)}
    again: dict[object, Slice] = {ids[0]: Slice(4, 6)}
    for me in ids[1:]:
        others = [one for one in hosts if one.node != me]
        held = foreseen(me, others, TEN, counted=())
        again[me] = plan(250, TEN, held, own=me).slice
    assert gaps(10, again.values()) == (Slice(0, 1), Slice(9, 10))
    for me, part in again.items():
        told = [(one, other, "claiming") for one, other in again.items() if one != me]
        held = foreseen(me, [one for one in hosts if one.node != me], TEN, counted=())
        if me != ids[0]:
            assert settle(me, part, told, counted=held)


def test_claims_that_stand_are_held_and_those_after_us_are_taken_as_they_are() -> None:
    others = [host(1, 0, 3, "claiming"), host(2, 6, 10, "loading"), host(9, 2, 5, "claiming")]
    held = foreseen(ordered(5), others, TEN, counted=())
    assert sorted(held) == [Slice(0, 3), Slice(2, 5), Slice(6, 10)]


def test_a_claim_that_was_reckoned_with_does_not_fall() -> None:
    others = [host(1, 0, 3, "claiming"), host(2, 0, 3, "claiming")]
    assert foreseen(ordered(5), others, TEN, counted=[Slice(0, 3)] * 2) == [Slice(0, 3)] * 2


def test_a_rival_that_can_hold_nothing_else_is_left_out() -> None:
    others = [host(1, 0, 3, "claiming"), host(2, 0, 3, "claiming", 50)]
    assert foreseen(ordered(5), others, TEN, counted=()) == [Slice(0, 3)]
