"""Network coordinates: estimates come true, and no lie makes them useless or infinite."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.coordinates import (
    DIMENSIONS,
    ERROR_SCALE,
    MAX_ERROR,
    MAX_RTT_S,
    MAX_US,
    MOVE_LEAST_US,
    SETTLED,
    TRUST,
    USUAL,
    Coordinate,
    Position,
    between_s,
    distance_s,
    moved,
)

axes = st.tuples(*[st.integers(-MAX_US, MAX_US)] * DIMENSIONS)
coordinates = st.builds(Coordinate, axes, st.integers(0, MAX_US), st.integers(0, 96))
HERE = Coordinate((0,) * DIMENSIONS, 100, 6)


def _at(x: int, height: int = 100) -> Coordinate:
    return Coordinate((x, *(0,) * (DIMENSIONS - 1)), height, 6)


def _settled(rtt_s: float = 0.02, seed: int = 1) -> Position:
    """A position after a minute of a quiet network of four."""
    rng = random.Random(seed)
    position = Position(ordered(200))
    for turn in range(60):
        other = _at((-1) ** turn * 8000)
        position.measured(ordered(turn % 4), rtt_s * rng.uniform(0.9, 1.1), other)
    return position


@given(coordinates, coordinates)
def test_distances_are_the_same_both_ways_and_finite(one: Coordinate, other: Coordinate) -> None:
    assert distance_s(one, other) == distance_s(other, one)
    assert 0 <= distance_s(one, other) < 80


@given(coordinates)
def test_a_coordinate_costs_less_than_sixty_bytes_in_a_record(one: Coordinate) -> None:
    with_it = msgspec.msgpack.encode({"coordinate": one, "x": 1})
    assert len(with_it) - len(msgspec.msgpack.encode({"x": 1})) < 60
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Coordinate) == one


@pytest.mark.parametrize(
    "said",
    [
        [[0] * 7, 0, 0],
        [[0] * 9, 0, 0],
        [[0.0] * 8, 0, 0],
        [[math.nan] + [0] * 7, 0, 0],
        [[0] * 8, math.inf, 0],
        [[MAX_US + 1] + [0] * 7, 0, 0],
        [[-MAX_US - 1] + [0] * 7, 0, 0],
        [[0] * 8, -1, 0],
        [[0] * 8, MAX_US + 1, 0],
        [[0] * 8, 0, 97],
        [[0] * 8, 0, -1],
        [[0] * 8, 0],
    ],
)
def test_what_is_out_of_bounds_is_refused_when_it_is_read(said: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=Coordinate)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.floats(0, 20, exclude_min=True), st.none() | coordinates),
        min_size=SETTLED,
        max_size=60,
    )
)
def test_whatever_is_said_and_measured_our_place_stays_within_bounds(
    samples: list[tuple[int, float, Coordinate | None]],
) -> None:
    position = Position(ordered(200))
    for number, rtt_s, other in samples:
        position.measured(ordered(number), rtt_s, other)
        where = position.coordinate
        if where is not None:
            encoded = msgspec.msgpack.encode(where)
            assert msgspec.msgpack.decode(encoded, type=Coordinate) == where


@given(coordinates, st.floats(0.0001, MAX_RTT_S))
def test_one_sample_moves_us_only_so_far(lie: Coordinate, rtt_s: float) -> None:
    """And that far only along the axes: a height may make up for what it got wrong itself."""
    position = _settled()
    before = position.coordinate
    position.measured(ordered(99), rtt_s, lie)
    after = position.coordinate
    assert before is not None
    assert after is not None
    way_s = math.dist(before.axes, after.axes) * 1e-6
    assert way_s <= TRUST * USUAL * 0.02 + 1e-5
    assert after.height - before.height <= 1e6 * 2 * TRUST * USUAL * 0.02


@pytest.mark.parametrize("rtt_s", [0.0, -1.0, MAX_RTT_S * 1.01, math.nan, math.inf])
def test_what_is_no_round_trip_changes_nothing(rtt_s: float) -> None:
    position = _settled()
    before = position.coordinate
    position.measured(ordered(1), rtt_s, HERE)
    assert position.coordinate == before


def test_it_says_nothing_before_it_is_settled() -> None:
    position = Position(ordered(1))
    for _ in range(SETTLED - 1):
        position.measured(ordered(2), 0.01, None)
        assert position.coordinate is None
    position.measured(ordered(2), 0.01, None)
    assert position.coordinate is not None


def test_one_outlier_of_a_node_is_not_heard() -> None:
    calm, shaken = _settled(), _settled()
    for turn in range(12):
        calm.measured(ordered(turn % 3), 0.02, _at(8000))
        late = 1.0 if turn == 4 else 0.02
        shaken.measured(ordered(turn % 3), late, _at(8000))
    assert calm.coordinate is not None
    assert not moved(calm.coordinate, shaken.coordinate)


def test_what_a_node_says_itself_is_later_than_its_record() -> None:
    by_record, by_word = _settled(), _settled()
    by_word.heard(ordered(77), _at(-30_000))
    by_record.measured(ordered(77), 0.02, _at(-30_000))
    by_word.measured(ordered(77), 0.02, _at(30_000))
    assert by_word.coordinate == by_record.coordinate
    by_word.forget(ordered(77))
    by_record.measured(ordered(78), 0.02, _at(30_000))
    by_word.measured(ordered(77), 0.02, _at(30_000))
    assert by_word.coordinate == by_record.coordinate


def test_samples_of_who_is_forgotten_are_gone() -> None:
    """Else the median would still be made of them."""
    kept, gone = _settled(), _settled()
    gone.forget(ordered(1))
    for position in (kept, gone):
        position.measured(ordered(1), 0.06, _at(8000))
    assert kept.coordinate != gone.coordinate
    gone.forget(ordered(77))


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("rtt_s", [0.0004, 0.02, 0.3])
def test_few_nodes_at_the_same_distance_find_it(count: int, rtt_s: float) -> None:
    rng = random.Random(count)
    positions = [Position(ordered(number)) for number in range(count)]
    for _ in range(80):
        for number, position in enumerate(positions):
            other = rng.choice([one for one in range(count) if one != number])
            sample = rtt_s * rng.uniform(0.95, 1.05)
            position.measured(ordered(other), sample, positions[other].coordinate)
    for one in positions[1:]:
        assert between_s(positions[0].coordinate, one.coordinate) == pytest.approx(rtt_s, rel=0.2)


def test_gravity_draws_a_cloud_that_drifted_off_back_to_the_origin() -> None:
    position = Position(ordered(1))
    for turn in range(400):
        position.measured(ordered(turn % 5), 0.5, _at(9_000_000))
    out = position.coordinate
    assert out is not None
    assert out.axes[0] > 2_000_000
    for turn in range(2000):
        neighbour = position.coordinate
        assert neighbour is not None
        position.measured(ordered(turn % 5), 2e-6 * neighbour.height + 1e-6, neighbour)
    assert 0 <= position.coordinate.axes[0] < 0.8 * out.axes[0]


def test_only_another_place_is_worth_telling() -> None:
    assert not moved(None, None)
    assert moved(None, HERE)
    assert moved(HERE, None)
    assert not moved(HERE, _at(MOVE_LEAST_US - 1000))
    assert moved(HERE, _at(MOVE_LEAST_US + 1000))
    assert moved(HERE, _at(0, height=6000))
    assert not moved(_at(100_000), _at(80_000)), "who is far away moves in longer steps"
    assert moved(_at(100_000), _at(60_000))
    unsure = Coordinate(_at(60_000).axes, 100, ERROR_SCALE)
    assert not moved(_at(100_000), unsure), "it may as well be there still"


def test_what_is_unknown_is_not_estimated() -> None:
    assert between_s(None, HERE) is between_s(HERE, None) is None
    assert between_s(HERE, _at(1_000)) == pytest.approx(0.0012)


def test_errors_are_bounded() -> None:
    position = Position(ordered(1))
    for turn in range(40):
        position.measured(ordered(turn % 5), 0.001, Coordinate((MAX_US,) * 8, MAX_US, 0))
    assert position.coordinate is not None
    assert position.coordinate.error <= MAX_ERROR * 64


def test_the_shortest_of_the_latest_round_trips_is_told() -> None:
    position = Position(ordered(1))
    other = ordered(2)
    assert position.least_s(other) is None
    for rtt_s in (0.001, 0.2, 0.004, 0.1):
        position.measured(other, rtt_s, None)
    assert position.least_s(other) == 0.004
    position.forget(other)
    assert position.least_s(other) is None
