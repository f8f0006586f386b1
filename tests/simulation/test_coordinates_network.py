"""Coordinates of a hundred nodes: they tell round trips, stay where they are, and bear liars."""

from __future__ import annotations

import random
import statistics

import pytest
from latencies import LAN_S, Latencies, lie
from simulated_network import SimulatedNetwork
from weather import Link, uniform

from diffuse_core.domain.coordinates import Coordinate, Position, distance_s, moved
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import COUNTER_BITS

COUNT = 100


class _Cloud:
    """Nodes that measure one other each per round, as probes do, some of them liars."""

    def __init__(self, seed: int, liars: int = 0) -> None:
        self.rng = random.Random(seed)
        self.latencies = Latencies(self.rng, COUNT)
        self.ids = [NodeId(number.to_bytes(32, "big")) for number in range(COUNT)]
        self.positions = [Position(node) for node in self.ids]
        self.liars = set(self.rng.sample(range(COUNT), liars))
        self.honest = [number for number in range(COUNT) if number not in self.liars]

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            for one in range(COUNT):
                other = self.rng.randrange(COUNT)
                if other != one:
                    self._measure(one, other)

    def _measure(self, one: int, other: int) -> None:
        rtt_s, said = self.latencies.sample_s(one, other), self.positions[other].coordinate
        if other in self.liars:
            rtt_s, said = rtt_s + self.rng.choice([0.0, 0.3]), lie(self.rng)
        self.positions[one].measured(self.ids[other], rtt_s, said)

    def places(self) -> list[Coordinate]:
        return [self.positions[number].coordinate for number in self.honest]

    def errors(self) -> list[float]:
        """Relative, between the honest, in order; not within a local network."""
        places = dict(zip(self.honest, self.places(), strict=True))
        return _errors(self.latencies, places)


def _errors(latencies: Latencies, places: dict[int, Coordinate]) -> list[float]:
    return sorted(
        abs(distance_s(places[one], places[other]) - rtt_s) / rtt_s
        for one in places
        for other in places
        if one < other and (rtt_s := latencies.rtt_s(one, other)) > LAN_S
    )


def _share(errors: list[float], share: float) -> float:
    return errors[int(share * len(errors))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_estimates_come_true_and_places_stay(seed: int) -> None:
    cloud = _Cloud(seed)
    cloud.run(100)
    assert statistics.median(cloud.errors()) < 0.2
    cloud.run(200)
    assert statistics.median(cloud.errors()) < 0.15
    assert _share(cloud.errors(), 0.9) < 0.4
    before = cloud.places()
    cloud.run(60)
    now = cloud.places()
    assert sum(map(moved, before, now)) < 0.2 * COUNT, "a minute's records of new places"
    assert statistics.median(cloud.errors()) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_tenth_of_liars_leaves_estimates_usable(seed: int) -> None:
    cloud = _Cloud(seed, liars=COUNT // 10)
    cloud.run(300)
    assert statistics.median(cloud.errors()) < 0.3
    assert _share(cloud.errors(), 0.9) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_that_gossip_soon_know_how_far_they_are_from_each_other(seed: int) -> None:
    """Round trips of real probes; coordinates as old as the records that carry them."""
    count = 30
    net = SimulatedNetwork(seed)
    latencies = Latencies(random.Random(seed), count)
    ids = [net.nodes[net.add(via=0 if number else None)].id for number in range(count)]
    for one in range(count):
        for other in range(count):
            way = latencies.rtt_s(one, other) / 2
            net.weather.links[ids[one], ids[other]] = Link(delay=uniform(way, 1.1 * way))

    def error() -> float:
        members = {member.record.node: member for member in net.members(0)}
        places = {number: members[ids[number]].record.coordinate for number in range(count)}
        return statistics.median(_errors(latencies, places))

    net.run(75.0)
    assert error() < 0.35
    before = net.traffic.copy()
    net.run(165.0)
    assert error() < 0.25
    told = [node.gossip._publisher.standing.sequence % 2**COUNTER_BITS for node in net.nodes]
    assert statistics.mean(told) < 5, "records that tell of nothing but new places"
    sent = net.traffic.since(before)
    assert sent.wire_bytes / count / 165 < 800
    members = {member.record.node: member for member in net.members(0)}
    for number in range(1, count):
        member = members[ids[number]]
        assert member.distance_s is not None
        assert member.rtt_s == pytest.approx(latencies.rtt_s(0, number), rel=0.15)
