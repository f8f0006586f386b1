"""Whole networks of Hosts that place themselves over real gossip, under a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from placement_models import LARGE, SMALL
from placement_network import PlacementNetwork
from placement_scenarios import Scenario, Setting
from simulated_network import SimulatedNetwork

from diffuse_core.domain.slices import Slice

LAYER = SMALL.shape.layer_bytes + SMALL.shape.kv_reserve()
END = SMALL.shape.head_bytes
LOAD_S = 5.0


def _network(seed: int = 1, **options: float) -> PlacementNetwork:
    net = SimulatedNetwork(seed, **options)
    net.add(record={"role": "sentinel"})
    return PlacementNetwork(net, SMALL, load_s=LOAD_S, target=1)


def _hold(layers: int) -> int:
    """Bytes for so many layers anywhere in the model."""
    return layers * LAYER + END


def _join(hosts: PlacementNetwork, *sizes: int, apart: float = 10.0) -> list[int]:
    numbers = []
    for size in sizes:
        numbers.append(hosts.join(_hold(size), via=0))
        hosts.net.run(apart)
    return numbers


def _run_until_settled(hosts: PlacementNetwork, limit_s: float = 90.0) -> float:
    start = hosts.net.now
    while hosts.net.now - start < limit_s:
        hosts.net.run(1.0)
        if hosts.settled() and min(hosts.counts()) > 0:
            return hosts.net.now - start
    raise AssertionError(f"{hosts.counts()} after {limit_s} s")


def test_hosts_that_start_at_the_same_moment_agree_in_two_rounds() -> None:
    hosts = _network()
    for _ in range(9):
        hosts.join(_hold(4), via=0)
    hosts.net.run(1.0 + 2 * 1.7 + 1.2 * LOAD_S + 0.5)
    assert hosts.settled()
    assert min(hosts.counts()) == 1
    assert hosts.claims < 9 + 8 + 4


def test_a_gap_is_filled_by_one_host_and_nobody_else_moves() -> None:
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16, 16)
    assert sorted(set(hosts.held())) == [Slice(0, 16), Slice(16, 32)]
    lost = [n for n in numbers if hosts.hosts[n].held == Slice(0, 16)]
    for number in lost:
        hosts.kill(number)
    took = _run_until_settled(hosts)
    assert hosts.moves == 1
    # Found dead in some seconds, three looks, a claim, a load.
    assert took < 8 + 6 + 2 + 1.2 * LOAD_S
    hosts.net.run(60.0)
    assert hosts.moves == 1


def test_a_large_gap_is_filled_by_several_at_once() -> None:
    hosts = _network()
    _join(hosts, 36, 8, 8, 8, 8, 8, 8)
    whole = next(n for n, host in hosts.hosts.items() if host.held == Slice(0, 32))
    for host in list(hosts.living()):
        if host.held.end == 32 and host.number != whole:
            hosts.kill(host.number)
    hosts.net.run(30.0)
    before = hosts.counts()
    hosts.kill(whole)
    missing = before.count(1)
    assert missing >= 8
    _run_until_settled(hosts)
    assert hosts.moves <= missing // 4


def test_who_never_moves_is_passed_over() -> None:
    """The two that everybody names first serve on and never claim: the third goes."""
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16, 16, 16, 16)
    gone = hosts.hosts[numbers[0]].held
    for number in numbers:
        if hosts.hosts[number].held == gone:
            hosts.kill(number)
    left = sorted(hosts.living(), key=lambda host: hosts.net.nodes[host.number].id)
    for host in left[:2]:
        host.honest = False
    took = _run_until_settled(hosts)
    assert [host.moves for host in left] == [0, 0, 1]
    # Each is given five looks and the time of a claim.
    assert 2 * 10 < took < 2 * 14 + 20


def test_another_goes_when_the_one_that_moved_dies_on_the_way() -> None:
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16, 16, 16, 16)
    gone = hosts.hosts[numbers[0]].held
    for number in numbers:
        if hosts.hosts[number].held == gone:
            hosts.kill(number)
    while not (moving := [h for h in hosts.living() if h.placing.phase == "loading"]):
        hosts.net.run(0.5)
    hosts.kill(moving[0].number)
    _run_until_settled(hosts)
    assert hosts.moves == 2


def test_sessions_are_over_before_a_host_moves() -> None:
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16, 16)
    gone = hosts.hosts[numbers[0]].held
    for number in numbers:
        hosts.hosts[number].sessions_s = 12.0
        if hosts.hosts[number].held == gone:
            hosts.kill(number)
    while not (moving := [h for h in hosts.living() if h.placing.phase == "draining"]):
        hosts.net.run(0.1)
    hosts.net.run(11.5)
    assert moving[0].held != gone
    hosts.net.run(1.0)
    assert moving[0].placing.phase == "loading"


def test_a_pause_of_five_seconds_moves_nobody() -> None:
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16)
    held = hosts.held()
    for number in numbers:
        hosts.net.pause(number, 5.0)
        hosts.net.run(15.0)
    assert hosts.held() == held
    assert hosts.moves == 0


def test_a_partition_that_heals_leaves_no_flapping() -> None:
    """Each half covers the model for itself; together they have some to spare, and stay."""
    hosts = _network()
    numbers = _join(hosts, 16, 16, 16, 16)
    sides = [{0}, set()]
    for number in numbers:
        sides[hosts.hosts[number].held == Slice(0, 16)].add(number)
    hosts.net.part(*sides)
    hosts.net.run(90.0)
    moves = hosts.moves
    assert moves == 2  # one in each half
    hosts.net.cut.clear()
    hosts.net.run(120.0)
    assert hosts.settled()
    assert hosts.moves == moves
    assert min(hosts.counts()) == 2


def test_what_all_together_can_hold_is_rearranged() -> None:
    hosts = _network()
    _join(hosts, 14, 14)
    inner = hosts.join(6 * LAYER, via=0)
    hosts.net.run(15.0)
    assert min(hosts.counts()) == 1
    ends = [host for host in hosts.living() if host.number != inner]
    for host in ends:
        hosts.kill(host.number)
    hosts.net.run(20.0)
    for size in (13, 13):
        hosts.join(_hold(size), via=0)
        hosts.net.run(10.0)
    assert _run_until_settled(hosts) >= 0
    assert sum(len(part) for part in hosts.held()) == 32


@pytest.mark.slow
def test_the_same_seed_gives_the_same_moves() -> None:
    def run(seed: int) -> list[Slice]:
        scenario = Scenario(seed, Setting(12, median=4.0, load_s=3.0))
        scenario.join_all()
        scenario.decimate(0.4)
        scenario.net.run(40.0)
        return scenario.hosts.held()

    assert run(3) == run(3)
    assert run(3) != run(4)


SETTINGS = [
    Setting(100, SMALL, median=3.0, sigma=0.8),
    Setting(100, LARGE, median=3.0, sigma=1.0, loss=0.05),
    Setting(100, LARGE, median=2.0, sigma=0.6),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "gossip"),
    [*zip(SETTINGS, (True, False, False), strict=True)],
    ids=["small", "large", "scarce"],
)
def test_a_hundred_hosts_cover_a_model_as_soon_as_they_can(setting: Setting, gossip: bool) -> None:
    """Over real gossip once; it takes the more of the time, and places alike."""
    scenario = Scenario(1, replace(setting, gossip=gossip))
    scenario.join_all()
    hosts = scenario.hosts
    claims, load = 3 * 2.2, 1.2 * setting.load_s
    assert hosts.covered_at - scenario.coverable_at < claims + load + 10
    assert min(hosts.counts()) >= 0.8 * scenario.bound
    assert hosts.moves <= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "size", "minutes"),
    [
        (1, {"count": 50, "median": 4.0}, 1.0),
        (2, {"gossip": False}, 5.0),
        (3, {"gossip": False}, 5.0),
    ],
)
def test_hosts_survive_a_massacre_and_churn(
    seed: int, size: dict[str, Any], minutes: float
) -> None:
    """Fifty over real gossip, and for longer a hundred over a shared view with delays."""
    scenario = Scenario(seed, replace(SETTINGS[2], **size))
    scenario.join_all()
    scenario.decimate(0.2)
    scenario.net.run(60.0)
    scenario.churn(0.1, minutes)
    scenario.net.run(90.0)
    hosts = scenario.hosts
    assert min(hosts.counts()) >= min(1, scenario.bound)
    assert hosts.longest_gap() <= 3 * SETTINGS[2].load_s
    assert hosts.moves / scenario.departures <= 1.3


def test_moves_end_by_themselves() -> None:
    """After a massacre Hosts move while that helps; then all is still, whatever they see late."""
    for seed in range(2):
        scenario = Scenario(seed, Setting(20, median=4.0, gossip=False, load_s=5.0))
        scenario.join_all()
        scenario.decimate(0.5)
        scenario.net.run(150.0)
        moves = scenario.hosts.moves
        assert moves <= scenario.departures
        scenario.net.run(300.0)
        assert scenario.hosts.moves == moves
        assert min(scenario.hosts.counts()) >= min(2, scenario.bound) - 1
