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
        clock.told(node(number), NOW + ahead, 0.0)
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
    clock.told(node(0), NOW + 1000, 1.0)
    assert clock.network_ms(1.0) == NOW + 1000
    clock.told(node(0), NOW + 2000 + module.SAME_MS // 2, 2.0)
    assert clock.network_ms(2.0) == NOW + 2000, "delays are no news"


def test_clocks_are_forgotten() -> None:
    clock = _clock(0, HOUR, HOUR)
    later = module.CLOCK_KEPT_S + 1
    clock.told(node(9), NOW + int(later * 1000), later)
    assert clock.network_ms(later) == NOW + int(later * 1000)


def test_a_flood_of_slow_clocks_does_not_push_out_the_fast_ones() -> None:
    clock = _clock(-2 * HOUR, 0, 0, 0, *[-HOUR] * (3 * MAX_CLOCKS))
    assert len(clock._told) == MAX_CLOCKS
    assert clock.network_ms(0.0) == NOW
