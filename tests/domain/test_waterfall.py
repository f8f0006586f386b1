"""Marks tell where a token spent its time, whatever clocks and strangers do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.messages import MARK_BYTES, MAX_STAGES, ForwardHidden, TokensDrawn
from diffuse_core.domain.view import StageTiming
from diffuse_core.domain.waterfall import (
    MOST_US,
    STAMP_BYTES,
    WINDOW_US,
    HopClock,
    add,
    begin,
    micros,
    read,
    stamp_of,
    stamped,
)


def test_the_marks_of_a_ring() -> None:
    marks = begin(micros(12.5))
    assert stamp_of(marks) == 12_500_000
    marks = add(marks, 0, 40_000, 20, 9_000)
    marks = stamped(marks, micros(13.0))
    assert stamp_of(marks) == 13_000_000
    marks = add(marks, 1, 250, 0, 11_000)
    assert read(marks, 2) == (StageTiming(40.0, 0.02, 9.0), StageTiming(0.25, 0.0, 11.0))
    assert len(marks) == STAMP_BYTES + 2 * MARK_BYTES


def test_marks_of_the_longest_route_fit_a_message() -> None:
    marks = begin(0)
    for index in range(MAX_STAGES):
        marks = add(marks, index, 1, 2, 3)
    message = ForwardHidden(bytes(16), 0, marks=marks)
    assert decode(encode(message))[0] == message
    assert len(read(marks, MAX_STAGES)) == MAX_STAGES
    assert add(marks, MAX_STAGES, 1, 2, 3) == b""


def test_a_first_stage_whose_rows_came_without_marks_begins_them() -> None:
    marks = add(b"", 0, 0, 10, 20)
    assert read(marks, 1) == (StageTiming(0.0, 0.01, 0.02),)
    # What a stranger put behind the stamp on the way round the ring is left out.
    assert read(add(begin(7) + b"noise", 0, 0, 10, 20), 1) == read(marks, 1)


def test_marks_that_miss_a_stage_are_dropped() -> None:
    one = add(begin(5), 0, 1, 2, 3)
    assert add(one, 2, 1, 2, 3) == b""
    assert add(one, -1, 1, 2, 3) == b""
    assert add(b"", 1, 1, 2, 3) == b""
    assert stamped(b"", 9) == b""
    assert read(one, 2) == ()
    assert read(b"", 0) == ()
    assert read(begin(5), 0) == ()


def test_figures_that_cannot_be_are_dropped() -> None:
    assert read(begin(1) + b"\xff" * MARK_BYTES, 1) == ()
    marks = add(begin(1), 0, -5, 2**40, 7)
    assert read(marks, 1) == (StageTiming(0.0, MOST_US / 1000, 0.007),)


@given(st.binary(max_size=80), st.integers(-3, 70), st.integers(), st.integers(0, 2**32 - 1))
def test_no_marks_raise(marks: bytes, index: int, figure: int, now: int) -> None:
    clock = HopClock(0.01)
    for _ in range(3):
        assert 0 <= clock.wire_us(marks, now) <= MOST_US
    more = add(stamped(marks, now), index, figure, figure, figure)
    message = TokensDrawn(bytes(16), 0, (1,), marks=more)
    assert decode(encode(message))[0] == message
    for timing in read(more, index + 1):
        assert 0 <= timing.wire_ms <= MOST_US / 1000


@pytest.mark.parametrize("offset", [0, 7_000_000_000, 2**32 - 1_000_000])
def test_the_way_is_half_the_round_trip_and_what_came_on_top(offset: int) -> None:
    rng, clock = random.Random(1), HopClock(0.080)
    taken = [40_000 + rng.randrange(0, 8_000) for _ in range(50)]
    found = []
    for turn, way in enumerate(taken):
        sent = 1_000_000 + 100_000 * turn
        found.append(clock.wire_us(begin(sent), (sent + offset + way) % 2**32))
    least = min(taken)
    late = taken.index(least)
    assert found[late:] == [40_000 + way - least for way in taken[late:]]


def test_where_the_round_trip_is_unknown_only_delays_count() -> None:
    clock = HopClock()
    assert clock.wire_us(begin(0), 500) == 0
    assert clock.wire_us(begin(1000), 1800) == 300
    assert clock.wire_us(begin(2000), 2400) == 0
    assert clock.wire_us(begin(3000), 3500) == 100
    assert clock.wire_us(b"", 3500) == 0


@pytest.mark.parametrize("drift", [50e-6, -50e-6])
def test_clocks_that_drift_apart_do_not_add_up(drift: float) -> None:
    clock, found = HopClock(), []
    for turn in range(60_000):
        sent = 20_000 * turn
        found.append(clock.wire_us(begin(sent), int(sent * (1 + drift)) % 2**32))
    # Twenty minutes, in which the clocks moved 60 ms apart.
    assert max(found) <= 2 * WINDOW_US * abs(drift) + 1
