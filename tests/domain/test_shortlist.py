"""Shortlists of many hosts: all layers stay, the near and quick ones are among them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
from domain_samples import MODEL, holding, member
from routing_samples import cost, place

from diffuse_core.domain import candidates, router, shortlist
from diffuse_core.domain.candidates import Candidate, Toll, candidate_of, tolls
from diffuse_core.domain.coordinates import Coordinate
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import Load
from diffuse_core.domain.shortlist import FEW, PER_LAYER, PLACES, shortlists
from diffuse_core.domain.slices import Slice, gaps

if TYPE_CHECKING:
    import pytest

TOTAL = 80


def _crowd(count: int, seed: int = 1) -> list[Candidate]:
    """Hosts in twelve towns, 10 ms across and up to 200 ms apart."""
    rng = random.Random(seed)
    towns = [[rng.randint(-70_000, 70_000) for _ in range(8)] for _ in range(12)]
    found = []
    for number in range(count):
        start = rng.randrange(TOTAL) if number else 0
        town = rng.choice(towns)
        where = tuple(axis + rng.randint(-2_000, 2_000) for axis in town)
        found.append(
            Candidate(
                node=NodeId(number.to_bytes(32, "big")),
                slice=Slice(start, min(TOTAL, start + rng.randint(1, 20))),
                rtt_s=rng.uniform(0.001, 0.2),
                step_s=rng.uniform(0.005, 0.04),
                sessions=rng.randrange(4),
                coordinate=Coordinate(where, rng.randint(100, 3_000), 6),
            )
        )
    return found


def _costs(hosts: list[Candidate]) -> dict[NodeId, Toll]:
    return tolls(hosts, random.Random(1))


def test_few_hosts_are_all_looked_at() -> None:
    hosts = _crowd(FEW)
    assert list(shortlists(hosts, 0, TOTAL, _costs(hosts), (), None, random.Random(1))) == [hosts]


def test_of_many_a_few_lists_hold_all_layers() -> None:
    hosts = _crowd(1000)
    lists = list(shortlists(hosts, 0, TOTAL, _costs(hosts), (), None, random.Random(1)))
    assert len(lists) == PLACES
    for some in lists:
        assert not gaps(TOTAL, [one.slice for one in some])
        assert len(some) <= TOTAL * PER_LAYER / 2


def test_the_rare_layer_is_never_left_out() -> None:
    hosts = [
        *(one for one in _crowd(200) if one.slice.end < TOTAL),
        Candidate(
            node=NodeId(b"\xff" * 32),
            slice=Slice(TOTAL - 1, TOTAL),
            step_s=9.0,
            sessions=50,
            coordinate=place(3.0),
        ),
    ]
    for some in shortlists(hosts, 0, TOTAL, _costs(hosts), (), None, random.Random(1)):
        assert hosts[-1] in some


def test_lists_for_a_gap_are_near_to_its_ends() -> None:
    hosts = [
        Candidate(
            node=NodeId(number.to_bytes(32, "big")),
            slice=Slice(0, 8),
            coordinate=place(number * 0.01),
        )
        for number in range(60)
    ]
    (some,) = shortlists(hosts, 0, 8, _costs(hosts), [hosts[30]], None, random.Random(1))
    assert {abs(hosts.index(one) - 30) for one in some} <= {0, 1, 2}


def test_the_route_is_hardly_dearer_than_if_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = _crowd(100, seed=3)
    known = {one.node: one for one in hosts}
    monkeypatch.setattr(candidates, "SPREAD", 0.0)
    monkeypatch.setattr(candidates, "UNSURE", 0.0)
    found = cost(router.choose_route(TOTAL, hosts, set(), random.Random(1)), known, TOTAL)
    for module in (router, shortlist):
        monkeypatch.setattr(module, "FEW", len(hosts))
    least = cost(router.choose_route(TOTAL, hosts, set(), random.Random(1)), known, TOTAL)
    assert least <= found <= 1.2 * least


def test_a_member_becomes_a_candidate() -> None:
    one = member(1, 0, 8, rtt_s=None, distance_s=0.03)
    load = Load(step_ms=12.0, wait_ms=3.0, sessions=9)
    one = msgspec.structs.replace(
        one, record=msgspec.structs.replace(one.record, load=load, coordinate=place(0.01))
    )
    found = candidate_of(one, 2, own=1)
    assert found.own == 1
    assert (found.slice, found.sessions, found.rtt_s) == (Slice(0, 8), 2, 0.03)
    assert (found.step_s, found.wait_s, found.coordinate) == (0.012, 0.003, place(0.01))
    measured = msgspec.structs.replace(one, rtt_s=0.5)
    assert candidate_of(measured, 0).rtt_s == 0.5
    assert candidate_of(measured, 0, asker=found.node).rtt_s == 0.0
    assert holding(0, 8).model == MODEL
