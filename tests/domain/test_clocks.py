"""The network's clock: lone wrong clocks move nothing, and equal knowledge gives equal time."""

from __future__ import annotations

import itertools

import pytest
from domain_samples import node

from diffuse_core.domain import clocks as module
from diffuse_core.domain.clocks import FUTURE_MS, MAX_CLOCKS, NetworkClock
from diffuse_core.domain.records import MAX_CLOCK_MS, MAX_SEQUENCE, first_sequence

NOW = 1_700_000_000_000
HOUR = 3_600_000


def _clock(own: int, *told: int) -> NetworkClock:
    clock = NetworkClock(NOW + own)
    clock.wall_ms(0.0)
    for number, ahead in enumerate(told):
        clock.told(node(number), NOW + ahead, 0.0, member=True)
    return clock


@pytest.mark.parametrize(
    ("own", "told", "network"),
    [
        (0, [], 0),
        (0, [HOUR], HOUR),
        (0, [-HOUR], 0),
        (0, [HOUR, 0], 0),
        (0, [HOUR, HOUR], HOUR),
        (0, [-HOUR, 0], 0),
        (HOUR, [0, 0], 0),
        (-HOUR, [0, 0], 0),
        (0, [HOUR, 0, 0], 0),
        (0, [HOUR, HOUR, 0], HOUR),
        (0, [HOUR, HOUR, 0, 0], 0),
        (0, [HOUR, HOUR, HOUR, 0], HOUR),
        (HOUR, [0] * 9, 0),
        (-HOUR, [0] * 9, 0),
        (0, [-HOUR] * 9 + [0, 0], 0),
    ],
)
def test_the_third_fastest_counts_and_of_few_the_middle_one(
    own: int, told: list[int], network: int
) -> None:
    assert _clock(own, *told).network_ms(0.0) == NOW + network


@pytest.mark.parametrize("count", range(2, 7))
def test_nodes_that_know_the_same_clocks_agree(count: int) -> None:
    for clocks in itertools.product((0, HOUR), repeat=count):
        times = set()
        for number, own in enumerate(clocks):
            others = clocks[:number] + clocks[number + 1 :]
            times.add(_clock(own, *others).network_ms(0.0))
        assert len(times) == 1


def test_clocks_run_on_by_monotonic_time() -> None:
    clock = _clock(0, HOUR, HOUR)
    assert clock.wall_ms(5.0) == NOW + 5000
    assert clock.network_ms(5.0) == NOW + HOUR + 5000
    assert clock.latest(5.0) == first_sequence(NOW + HOUR + 5000 + FUTURE_MS + 1) - 1


def test_nothing_passes_the_end_of_time() -> None:
    clock = NetworkClock(MAX_CLOCK_MS)
    assert clock.latest(0.0) == MAX_SEQUENCE
    assert NetworkClock(-5).network_ms(0.0) == 0


def test_what_a_node_says_later_replaces_what_it_said() -> None:
    clock = _clock(0, HOUR, HOUR)
    clock.told(node(0), NOW + 1000, 1.0, member=True)
    assert clock.network_ms(1.0) == NOW + 1000
    clock.told(node(0), NOW + 2000 + module.SAME_MS // 2, 2.0, member=True)
    assert clock.network_ms(2.0) == NOW + 2000, "delays are no news"


def test_clocks_are_forgotten() -> None:
    clock = _clock(0, HOUR, HOUR)
    later = module.CLOCK_KEPT_S + 1
    clock.told(node(9), NOW + int(later * 1000), later, member=True)
    assert clock.network_ms(later) == NOW + int(later * 1000)


def test_a_flood_of_slow_clocks_does_not_push_out_the_fast_ones() -> None:
    clock = _clock(-2 * HOUR, 0, 0, 0, *[-HOUR] * (3 * MAX_CLOCKS))
    assert len(clock._told) == MAX_CLOCKS
    assert clock.network_ms(0.0) == NOW


def test_a_lone_node_is_not_set_back_by_strangers_but_by_members() -> None:
    clock = _clock(HOUR)
    for member in (False, True):
        for number in range(5):
            clock.told(node(number), NOW, 0.0, member=member)
        assert clock.network_ms(0.0) == (NOW if member else NOW + HOUR)


def test_slow_strangers_move_nothing_among_members_and_fast_ones_do() -> None:
    clock = _clock(0, 0)
    for number in range(10, 30):
        clock.told(node(number), NOW - HOUR, 0.0, member=False)
    assert clock.network_ms(0.0) == NOW
    for number in range(30, 33):
        clock.told(node(number), NOW + HOUR, 0.0, member=False)
    assert clock.network_ms(0.0) == NOW + HOUR
    for number in range(30, 33):
        clock.told(node(number), NOW - HOUR, 0.0, member=False)
    assert clock.network_ms(0.0) == NOW


def test_a_flood_of_fast_strangers_does_not_push_out_the_members() -> None:
    clock = _clock(0, 0)
    for number in range(10, 10 + 2 * MAX_CLOCKS):
        clock.told(node(number), NOW + HOUR, 0.0, member=False)
    for number in range(10, 10 + 2 * MAX_CLOCKS):
        clock.told(node(number), NOW - HOUR, 0.0, member=False)
    assert len(clock._told) == MAX_CLOCKS
    assert clock.network_ms(0.0) == NOW


def test_what_liars_said_is_forgotten_though_the_others_say_nothing_new() -> None:
    clock = _clock(0, 0)
    for number in range(10, 13):
        clock.told(node(number), NOW + HOUR, 0.0, member=False)
    for minute in range(1, 13):
        clock.told(node(0), NOW + minute * 60_000, minute * 60.0, member=True)
    assert clock.network_ms(720.0) == NOW + 720_000
