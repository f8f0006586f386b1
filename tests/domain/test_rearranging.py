"""Rearranging: whatever Hosts can hold together is held in the end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from domain_samples import ordered
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import TEN, host

from diffuse_core.domain.fitting import reach
from diffuse_core.domain.healing import moves
from diffuse_core.domain.planner import HostSummary, plan
from diffuse_core.domain.rearranging import rearranged
from diffuse_core.domain.slices import Slice, gaps

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import ModelShape


def laid(hosts: list[HostSummary], **options: object) -> dict[int, Slice]:
    return {node[0]: part for node, part in rearranged(hosts, TEN, **options).items()}


def after(hosts: list[HostSummary], layout: dict[int, Slice]) -> list[Slice]:
    return [layout.get(one.node[0], one.slice) for one in hosts]


def test_one_that_overlaps_moves_over_a_gap() -> None:
    hosts = [
        host(1, 0, 4, capacity=700),
        host(2, 3, 6, capacity=300),
        host(3, 7, 10, capacity=600),
    ]
    assert laid(hosts) == {2: Slice(4, 7)}


def test_several_move_along_when_the_overlap_is_elsewhere() -> None:
    hosts = [
        host(1, 0, 3, capacity=600),
        host(2, 2, 4, capacity=250),
        host(3, 4, 6, capacity=250),
        host(4, 7, 10, capacity=600),
    ]
    assert laid(hosts) == {2: Slice(3, 5), 3: Slice(5, 7)}


def test_a_host_that_can_hold_an_end_gives_way_to_those_that_cannot() -> None:
    hosts = [
        host(1, 3, 7, capacity=400),
        host(2, 0, 1, capacity=450),
        host(3, 1, 3, capacity=250),
        host(4, 7, 9, capacity=400),
        host(5, 7, 9, capacity=250),
    ]
    layout = laid(hosts)
    assert gaps(10, [one.slice for one in hosts]) == (Slice(9, 10),)
    assert gaps(10, after(hosts, layout)) == ()


def test_a_host_that_can_hold_no_end_is_not_asked_to() -> None:
    hosts = [
        host(1, 0, 4, capacity=700),
        host(2, 3, 8, capacity=500),
        host(3, 4, 5, capacity=150),
        host(4, 4, 5, capacity=150),
    ]
    assert laid(hosts) == {}
    assert gaps(10, after([*hosts, host(5, 1, 2, capacity=450)], laid(hosts))) == (Slice(8, 10),)


def test_a_layer_that_is_too_large_for_everybody_is_left() -> None:
    shape = msgspec.structs.replace(
        TEN,
        layers=3,
        layer_bytes=300,
        kinds=(100, 300),
        kind_of=bytes([0, 1, 0]),
        embedding_bytes=0,
        head_bytes=0,
    )
    hosts = [host(1, 0, 1, capacity=100), host(2, 0, 1, capacity=100), host(3, 2, 3, capacity=100)]
    assert rearranged(hosts, shape) == {}


def test_one_host_that_holds_the_whole_is_enough() -> None:
    assert laid([host(1, 0, 6, capacity=1600), host(2, 1, 6, capacity=500)]) == {1: Slice(0, 10)}


def test_there_is_no_layout_when_all_together_are_too_small() -> None:
    assert laid([host(1, 0, 4, capacity=700), host(2, 4, 7, capacity=300)]) == {}
    assert laid([host(1, 1, 8, capacity=250)]) == {}
    assert laid([]) == {}


@pytest.mark.parametrize("state", ["claiming", "loading"])
def test_those_that_are_on_their_way_stay_where_they_go(state: str) -> None:
    hosts = [
        host(1, 0, 4, state, capacity=700),
        host(2, 3, 6, capacity=300),
        host(3, 7, 10, state, capacity=600),
    ]
    assert laid(hosts) == {2: Slice(4, 7)}
    fixed = [host(1, 0, 4), host(2, 3, 6, state, capacity=300), host(3, 7, 10, capacity=700)]
    assert laid(fixed) == {3: Slice(6, 10)}


def test_who_was_passed_over_stays() -> None:
    hosts = [host(1, 0, 4, capacity=700), host(2, 3, 6, capacity=300), host(3, 7, 10)]
    assert laid(hosts, passed={ordered(3)}) == {2: Slice(4, 7)}
    assert laid(hosts, passed={ordered(2)}) == {3: Slice(5, 10)}
    assert laid(hosts, passed={ordered(2), ordered(3)}) == {}


def test_our_own_cap_counts() -> None:
    hosts = [
        host(1, 0, 4, capacity=700),
        host(2, 3, 5, capacity=300),
        host(3, 7, 10, capacity=600),
    ]
    assert laid(hosts)[2] == Slice(4, 7)
    assert 2 not in laid(hosts, caps={ordered(2): 2})


def coverable(capacities: list[int], shape: ModelShape) -> bool:
    """By trying all pairs of Hosts for the ends."""
    total = shape.layers
    rooms = [reach(capacity, shape) for capacity in capacities]
    inner = [max(end - at for at, end in enumerate(ends)) for ends in rooms]
    last = [
        max((total - at for at in range(total) if ends[at] == total), default=0) for ends in rooms
    ]
    if any(ends[0] == total for ends in rooms):
        return True
    return any(
        rooms[a][0]
        and last[b]
        and rooms[a][0] + last[b] + sum(inner) - inner[a] - inner[b] >= total
        for a in range(len(rooms))
        for b in range(len(rooms))
        if a != b
    )


@settings(max_examples=100)
@given(st.integers(0, 10**9))
def test_hosts_that_join_one_after_another_cover_whatever_they_can(seed: int) -> None:
    """Nobody is left out: when their memory suffices in some order, every layer is held."""
    rng = random.Random(seed)
    ends = rng.choice([0, 100, 350])
    shape = msgspec.structs.replace(
        TEN, layers=rng.choice([4, 10, 17]), embedding_bytes=ends, head_bytes=ends
    )
    capacities = [rng.randint(100, 250 + rng.choice([0, 600])) for _ in range(rng.randint(1, 14))]
    hosts: list[HostSummary] = []
    for number, capacity in enumerate(capacities):
        held = [one.slice for one in hosts]
        part = plan(capacity, shape, held, own=ordered(number)).slice
        hosts.append(HostSummary(ordered(number), part, "ready", capacity))
        while named := moves(hosts, shape, target_replicas=1):
            there = {move.node: move.plan.slice for move in named}
            hosts = _moved(hosts, there)
        hosts = _moved(hosts, rearranged(hosts, shape))
        held = [one.slice for one in hosts]
        assert all(shape.needed_bytes(one.slice) <= one.capacity for one in hosts)
        assert (not gaps(shape.layers, held)) == coverable(capacities[: number + 1], shape)


def _moved(hosts: list[HostSummary], there: dict) -> list[HostSummary]:
    return [msgspec.structs.replace(one, slice=there.get(one.node, one.slice)) for one in hosts]
