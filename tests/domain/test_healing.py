"""Healing: exactly those move that can be spared, where they help, and then no more."""

from __future__ import annotations

import random
from time import process_time

import msgspec
import pytest
from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st
from placement_samples import TEN, host

from diffuse_core.domain.healing import MOVES_INTO_GAPS, moves, spared
from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer

HURT = [host(1, 0, 4), host(2, 0, 4), host(3, 0, 4), host(4, 7, 10)]


def movers(hosts: list[HostSummary], **options: object) -> dict[int, Slice]:
    return {move.node[0]: move.plan.slice for move in moves(hosts, TEN, **options)}


def test_exactly_one_surplus_host_moves_into_a_gap() -> None:
    found = movers(HURT)
    assert list(found) == [1]
    assert found[1].contains(Slice(4, 7))
    assert moves(HURT, TEN)[0].gap


def test_the_one_that_fills_most_moves() -> None:
    hosts = [host(1, 0, 4, capacity=200), host(2, 0, 4, capacity=800), *HURT[2:]]
    assert list(movers(hosts)) == [2]


def test_among_equals_the_one_whose_layers_have_the_most_holders() -> None:
    hosts = [host(1, 0, 3), host(2, 0, 3), *[host(n, 3, 6) for n in (3, 4, 5)], host(6, 8, 10)]
    assert list(movers(hosts)) == [3]


def test_then_the_one_that_serves_the_fewest_layers() -> None:
    hosts = [host(1, 0, 6), host(2, 0, 6), host(3, 2, 4), host(4, 9, 10)]
    assert list(movers(hosts)) == [3]


def test_who_was_passed_over_is_not_named_again() -> None:
    assert list(movers(HURT, passed={ordered(1)})) == [2]
    assert movers(HURT, passed={ordered(1), ordered(2), ordered(3)}) == {}


def test_a_large_gap_is_shared_out_at_once() -> None:
    hosts = [host(number, 1, 3, capacity=250) for number in range(6)] + [host(9, 0, 3)]
    found = movers([*hosts, host(10, 7, 10)])
    assert sorted(found.values()) == [Slice(3, 5), Slice(5, 7)]


def test_no_more_hosts_are_named_at_once_than_one_can_keep_an_eye_on() -> None:
    shape = msgspec.structs.replace(TEN, layers=40)
    hosts = [host(number, 1, 2, capacity=150) for number in range(40)]
    assert len(moves(hosts, shape)) == MOVES_INTO_GAPS


def test_a_host_that_holds_a_single_layer_helps_too() -> None:
    hosts = [host(1, 2, 3, capacity=150), host(2, 0, 6), host(3, 7, 10)]
    assert movers(hosts) == {1: Slice(6, 7)}


@pytest.mark.parametrize(
    "hosts",
    [
        [host(1, 0, 10), host(2, 0, 10)],
        [host(1, 0, 4), host(4, 7, 10)],
        [*HURT, host(5, 4, 7, "loading")],
        [*HURT, host(5, 4, 7, "claiming")],
        [host(1, 0, 4), host(2, 0, 4, "loading"), host(4, 7, 10)],
        [host(1, 0, 4, capacity=50), host(2, 0, 4, capacity=50), host(4, 7, 10)],
    ],
    ids=["no gap", "no surplus", "being filled", "claimed", "replica not ready", "too small"],
)
def test_nobody_moves(hosts: list[HostSummary]) -> None:
    assert movers(hosts, target_replicas=1) == {}


def test_our_own_cap_on_layers_holds() -> None:
    only = {ordered(2), ordered(3)}
    assert movers(HURT, passed=only, caps={ordered(1): 2})[1] in (Slice(4, 6), Slice(5, 7))


# --- below the target ----------------------------------------------------------------------

THIN = [host(1, 0, 5), host(2, 5, 10), host(3, 5, 10), host(4, 5, 10), host(5, 0, 3)]


def test_a_range_below_the_target_is_reinforced_by_a_host_that_can_be_spared() -> None:
    found = movers(THIN)
    assert list(found) == [2]
    assert found[2].contains(Slice(3, 5))
    assert not moves(THIN, TEN)[0].gap
    assert movers(THIN, target_replicas=1) == {}


def test_nobody_reinforces_at_the_price_of_another_range() -> None:
    assert movers([host(1, 0, 5), host(2, 5, 10), host(3, 5, 10)]) == {}


Pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=12)


@given(Pairs, st.integers(1, 4))
def test_every_move_makes_the_poorest_layers_fewer_or_richer(
    pairs: list[tuple[int, int]], target: int
) -> None:
    hosts = [
        host(number, start, min(10, start + length), capacity=100 * length + 300)
        for number, (start, length) in enumerate(pairs)
    ]
    for _ in range(60):
        found = movers(hosts, target_replicas=target)
        if not found:
            break
        before = _poverty(hosts)
        hosts = [
            msgspec.structs.replace(one, slice=found.get(one.node[0], one.slice)) for one in hosts
        ]
        assert _poverty(hosts) < before
    assert movers(hosts, target_replicas=target) == {}


def _poverty(hosts: list[HostSummary]) -> tuple[int, int]:
    counts = replicas_per_layer(10, [one.slice for one in hosts])
    return -min(counts), counts.count(min(counts))


@given(Pairs)
def test_everybody_names_the_same_and_nobody_opens_a_gap(pairs: list[tuple[int, int]]) -> None:
    hosts = [
        host(number, start, min(10, start + length))
        for number, (start, length) in enumerate(pairs)
    ]
    found = movers(hosts)
    shuffled = random.Random(1).sample(hosts, len(hosts))
    assert movers(shuffled) == found
    missing = [set(_layers(gaps(10, [one.slice for one in hosts])))]
    after = [found.get(one.node[0], one.slice) for one in hosts]
    assert set(_layers(gaps(10, after))) <= missing[0]
    # Nor while they move: what they leave is held by others that stay.
    staying = [one.slice for one in hosts if one.node[0] not in found]
    assert set(_layers(gaps(10, staying))) == missing[0]


def _layers(parts: tuple[Slice, ...]) -> list[int]:
    return [layer for part in parts for layer in range(part.start, part.end)]


def test_spared_counts_ready_hosts_but_ourselves() -> None:
    hosts = [host(1, 0, 4), host(2, 0, 4, "loading"), host(3, 0, 2), host(4, 2, 6)]
    assert spared(ordered(1), Slice(0, 4), hosts, 10)
    assert not spared(ordered(1), Slice(0, 4), hosts[:3], 10)


def test_a_thousand_hosts_are_looked_at_in_milliseconds() -> None:
    shape = msgspec.structs.replace(TEN, layers=200)
    rng = random.Random(1)
    hosts = []
    for number in range(1000):
        start = rng.randrange(190)
        if not (start <= 100 < start + 10):
            size = 1000 + number
            summary = HostSummary(rng.randbytes(32), Slice(start, start + 10), "ready", size)
            hosts.append(summary)
    assert moves(hosts, shape)
    start_s = process_time()
    assert moves(hosts, shape)
    assert process_time() - start_s < 1.0
