"""Which sentinels a node reserves at, when it renews, and when it moves."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.reservations import (
    ANSWER_S,
    BARE_LONGEST_S,
    FORGIVEN_S,
    LOST_LONGEST_S,
    MAX_REMEMBERED,
    MISSED_S,
    RENEW_LONGEST_S,
    REST_LONGEST_S,
    STEADY_S,
    WANTED,
    Candidate,
    ReservationPlan,
)

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C, D = (NodeId(bytes([number]) * 32) for number in range(1, 5))


def candidates(*nodes: NodeId) -> list[Candidate]:
    """In the order of their round trips."""
    return [Candidate(node, ("s:1",), round_trip=0.01 * at) for at, node in enumerate(nodes)]


def plan() -> ReservationPlan:
    return ReservationPlan(random.Random(1))


def holding(*nodes: NodeId, now: float = 0.0, seconds: float = 120.0) -> ReservationPlan:
    made = plan()
    assert made.due(candidates(*nodes), now) == [*nodes]
    for node in nodes:
        assert made.granted(node, seconds, now)
    return made


def test_two_are_asked_those_that_the_user_named_first_then_the_nearest() -> None:
    known = [
        Candidate(A, ("a:1",)),
        Candidate(B, ("b:1",), round_trip=0.2),
        Candidate(C, ("c:1",), round_trip=0.1),
        Candidate(D, ("d:1",), bootstrap=True, round_trip=0.9),
    ]
    made = plan()
    assert made.due(known, 0.0) == [D, C]
    assert made.due(known, 0.0) == []
    assert made.held(0.0) == ()
    assert made.concerned() == {C, D}


def test_one_is_enough_where_there_are_no_more_and_a_second_is_taken_when_it_comes() -> None:
    made = holding(A)
    assert made.due(candidates(A), 1.0) == []
    assert made.due(candidates(A, B), 2.0) == [B]
    assert made.granted(B, 120, 2.0)
    assert made.held(2.0) == (A, B)
    assert made.due(candidates(A, B, C), 3.0) == []


def test_a_third_of_the_time_is_left_for_no_answer_twice_over() -> None:
    made = holding(A, seconds=90)
    assert made.next_deadline(0.0) == 30
    assert made.due(candidates(A), 29.9) == []
    assert made.due(candidates(A), 30.0) == [A]
    assert made.holds(A, 30.0)
    assert made.granted(A, 90, 31.0)
    assert made.next_deadline(31.0) == 61


def test_a_long_reservation_is_renewed_often_all_the_same() -> None:
    """Or a sentinel that fell silent would be found out hours later."""
    made = holding(A, seconds=86_400)
    assert made.next_deadline(0.0) == RENEW_LONGEST_S


def test_a_renewal_without_an_answer_ends_it_and_the_next_one_is_asked() -> None:
    made = holding(A, B, seconds=90)
    known = candidates(A, B, C)
    assert made.due(known, 30.0) == [A, B]
    made.granted(B, 90, 30.1)
    assert made.next_deadline(30.1) == 30 + ANSWER_S
    assert made.due(known, 30 + ANSWER_S) == [C]
    assert made.held(30 + ANSWER_S) == (B,)


def test_a_sentinel_that_is_no_longer_there_is_asked_soon() -> None:
    made = holding(A, B)
    assert made.due(candidates(B, C), MISSED_S - 0.1) == []
    assert made.due(candidates(B, C), MISSED_S) == [A]
    assert made.due(candidates(B, C), MISSED_S + ANSWER_S) == [C]


def test_one_that_runs_out_is_not_held() -> None:
    made = holding(A, seconds=3)
    assert made.due(candidates(), 1.0) == [A]
    assert not made.holds(A, 3.0)
    assert made.held(3.0) == ()
    assert made.due(candidates(B), 3.0) == [B]
    assert not made.granted(A, 3, 3.1)


def test_the_next_one_takes_the_place_of_one_that_ended() -> None:
    made = holding(A, B)
    made.ended(A, 10.0)
    assert made.held(10.0) == (B,)
    assert made.due(candidates(A, B, C), 10.0) == [C]


def test_where_there_is_no_other_the_same_is_asked_again_at_once() -> None:
    made = holding(A)
    made.ended(A, 10.0)
    assert made.due(candidates(A), 10.0) == [A]


def waits_of(
    made: ReservationPlan, end: Callable[[NodeId, float], None], *others: NodeId
) -> list[float]:
    """How long A is left alone each time when it ends as soon as it was granted."""
    waits, now = [], 0.0
    for _ in range(12):
        end(A, now)
        began = now
        while A not in (chosen := made.due(candidates(*others, A), now)):
            for node in chosen:
                made.granted(node, 120, now)
            now = made.next_deadline(now)
        for node in chosen:
            made.granted(node, 120, now)
        waits.append(now - began)
    made.ended(A, now + STEADY_S)
    assert A in made.due(candidates(A), now + STEADY_S), "steady for a while: that counts no more"
    return waits


@pytest.mark.parametrize("how", ["ended", "refused"])
def test_one_that_ends_again_and_again_is_asked_ever_more_rarely(how: str) -> None:
    made = holding(A, B)
    waits = waits_of(made, getattr(made, how), B)
    assert waits[0] == 0
    assert waits[1] > 0
    assert all(later >= 1.2 * before for before, later in pairwise(waits[1:7]))
    assert REST_LONGEST_S / 2 < max(waits) <= 1.25 * REST_LONGEST_S


@pytest.mark.parametrize(
    ("how", "longest"), [("ended", LOST_LONGEST_S), ("refused", BARE_LONGEST_S)]
)
def test_while_none_is_held_the_rests_are_short(how: str, longest: float) -> None:
    made = holding(A)
    waits = waits_of(made, getattr(made, how))
    assert longest / 2 < max(waits) <= 1.25 * longest
    assert len(set(waits)) > 9, "not all nodes at once"


def test_who_lost_the_last_one_is_no_longer_patient_with_the_others() -> None:
    made, now = holding(A, B), 0.0
    for _ in range(6):
        made.ended(A, now)
        while made.due(candidates(A, B), now) != [A]:
            now += 1.0
            made.granted(B, 120, now)
        made.granted(A, 120, now)
    made.ended(A, now)
    assert made.due(candidates(A, B), now + 1.25 * LOST_LONGEST_S) == []
    made.ended(B, now + 3.0)
    assert set(made.due(candidates(A, B), now + 3.0)) == {A, B}
    assert made.granted(B, 120, now + 3.0)


@pytest.mark.parametrize("every", [10, 20, 30, 45, 59, 61])
@pytest.mark.parametrize("down", [0.0, 1.5])
def test_on_a_line_that_drops_again_and_again_one_is_soon_back(every: float, down: float) -> None:
    made, now, drop, none, gap = plan(), 0.0, float(every), 0.0, 0.0
    longest, second = 0.0, 0.0
    while now < 900:
        if now >= drop:
            for node in made.concerned():
                made.ended(node, now)
            drop += every
        for node in made.due(candidates(A, B), now):
            if now < drop - every + down:
                made.refused(node, now)
            else:
                made.granted(node, 120, now)
        bare = not made.held(now)
        gap = gap + 0.25 if bare else 0.0
        longest, none = max(longest, gap), none + 0.25 * bare
        second += 0.25 * (len(made.held(now)) == WANTED)
        now += 0.25
    assert longest <= 2 * (1.25 * LOST_LONGEST_S + down)
    assert none / 900 <= (1.25 * LOST_LONGEST_S + down) / every
    assert second / 900 >= 0.5, "both come back, not only one"


def test_one_of_no_use_is_left_alone_for_long_while_another_is_held() -> None:
    made = holding(A, B)
    made.refused(A, 0.0, 300.0)
    for now in range(0, 220, 20):
        made.granted(B, 120, float(now))
        assert A not in made.due(candidates(A, B), float(now))
    made.refused(B, 220.0)
    assert set(made.due(candidates(A, B), 221.0)) == {A, B}


def test_one_that_refuses_rests_longer_each_time_and_is_forgiven_in_the_end() -> None:
    made, now = plan(), 0.0
    rests = []
    for _ in range(4):
        assert made.due(candidates(A), now) == [A]
        made.ended(A, now)
        assert made.due(candidates(A), now) == []
        rests.append(made.next_deadline(now) - now)
        now = made.next_deadline(now)
    assert rests == sorted(rests)
    # Another one comes first, though it is farther away.
    assert made.due(candidates(A, B), now + 1) == [B, A]
    made = plan()
    assert made.due(candidates(A), 0.0) == [A]
    made.ended(A, 0.0)
    assert made.due(candidates(A, B, C), 2.0) == [B, C]
    made.ended(B, 2.0)
    made.ended(C, 2.0)
    assert made.due(candidates(A, B, C), 10.0 + FORGIVEN_S) == [A, B]


def test_two_nodes_that_lose_a_sentinel_do_not_come_back_together() -> None:
    waits = set()
    for seed in range(5):
        made = ReservationPlan(random.Random(seed))
        assert made.due(candidates(A), 0.0) == [A]
        made.ended(A, 0.0)
        waits.add(made.next_deadline(0.0))
    assert len(waits) == 5


def test_what_was_not_asked_for_counts_for_nothing() -> None:
    made = plan()
    assert not made.granted(A, 120, 0.0)
    assert made.held(0.0) == ()
    made.ended(A, 0.0)
    assert made.next_deadline(0.0) == math.inf
    assert made.due(candidates(A), 0.0) == [A]


def test_all_is_forgotten_at_the_end() -> None:
    made = holding(A)
    made.due(candidates(A, B), 0.0)
    made.ended(B, 0.0)
    made.forget()
    assert made.concerned() == set()
    assert made.next_deadline(0.0) == math.inf


def test_what_is_remembered_is_bounded() -> None:
    made = plan()
    for number in range(2 * MAX_REMEMBERED):
        (chosen,) = made.due([Candidate(NodeId(number.to_bytes(32)), ("s:1",))], 0.0)
        made.ended(chosen, 0.0)
    assert len(made._failures) == MAX_REMEMBERED


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["grant", "end", "refuse", "wait"]),
            st.integers(0, 5),
            st.floats(0, 100),
            st.integers(1, 200),
        ),
        max_size=60,
    )
)
def test_never_more_than_wanted_and_never_a_deadline_that_nothing_meets(
    steps: list[tuple[str, int, float, int]],
) -> None:
    nodes = [NodeId(bytes([number]) * 32) for number in range(6)]
    made, now = plan(), 0.0
    for what, which, seconds, granted in steps:
        for node in made.due(candidates(*nodes[:which]), now):
            assert node in made.concerned()
        assert len(made.concerned()) <= WANTED
        assert made.next_deadline(now) > now
        if what == "grant":
            made.granted(nodes[which], granted, now)
        elif what == "end":
            made.ended(nodes[which], now)
        elif what == "refuse":
            made.refused(nodes[which], now)
        now += seconds
