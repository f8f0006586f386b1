"""Whole networks under a virtual clock: news spreads, the dead are found, the slow are spared."""

from __future__ import annotations

import pytest
from simulated_network import BOOT_MS, SimulatedNetwork

from diffuse_core.domain.observe import members_from_push


def _network(count: int, seed: int = 1, **weather: object) -> SimulatedNetwork:
    net = SimulatedNetwork(seed, **weather)
    net.add()
    for _ in range(count - 1):
        net.add(via=0)
        net.run(0.05)
    net.run(12.0)
    return net


def _seconds_until(net: SimulatedNetwork, about: int, liveness: str | None, limit: float) -> float:
    """Seconds until every running node believes that; the limit when it takes longer."""
    start = net.now
    others = [number for number in net.living() if number != about]
    while net.now - start < limit:
        if all(net.knows(number).get(net.name(about)) == liveness for number in others):
            return net.now - start
        net.run(0.1)
    return limit


def test_a_new_node_is_known_to_all_in_a_second() -> None:
    net = _network(20)
    number = net.add(via=3)
    assert _seconds_until(net, number, "alive", 5.0) < 1.5
    assert len(net.knows(number)) == 21


def test_a_changed_record_reaches_all_in_a_second() -> None:
    net = _network(20)
    net.say(7, capacity=123)
    net.run(1.5)
    for number in net.living():
        node = net.nodes[number]
        known = {
            one.record.node: one.record.capacity
            for one in node.gossip.members(net.now + node.clock_offset)
        }
        assert known[net.nodes[7].identity.node] == 123


@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_a_killed_process_is_dead_to_all_in_seconds(count: int) -> None:
    net = _network(count)
    net.kill(count - 1)
    assert _seconds_until(net, count - 1, "dead", 30.0) < 5.0
    assert {name for _, name in net.told("died")} == {f"{net.name(count - 1)} died"}


@pytest.mark.parametrize("count", [2, 4, 20])
def test_a_machine_that_fell_silent_is_dead_to_all_in_seconds(count: int) -> None:
    net = _network(count)
    net.kill(1, silent=True)
    assert 5.0 < _seconds_until(net, 1, "dead", 60.0) < 15.0


@pytest.mark.parametrize("count", [2, 4, 20])
def test_a_farewell_is_heard_at_once(count: int) -> None:
    net = _network(count)
    net.leave(1)
    assert _seconds_until(net, 1, None, 5.0) < 1.5
    assert not net.told("died")
    assert len(net.told("left")) == count - 1


@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_pauses_of_five_seconds_kill_nobody(count: int) -> None:
    net = _network(count)
    for turn in range(6):
        net.pause(turn % count, 5.0)
        net.run(net.rng.uniform(7.0, 11.0))
    net.run(10.0)
    assert net.told("is suspect")
    assert not net.told("died")
    assert all(set(net.knows(number).values()) == {"alive"} for number in net.living())


def test_all_pausing_at_once_kills_nobody() -> None:
    net = _network(6)
    for number in range(6):
        net.pause(number, 30.0)
    net.run(60.0)
    assert not net.told("died")


def test_a_lossy_network_kills_nobody() -> None:
    net = _network(8, loss=0.1, delay=(0.005, 0.15))
    net.run(60.0)
    assert not net.told("died")
    assert all(set(net.knows(number).values()) == {"alive"} for number in net.living())


def test_a_restarted_process_comes_back_under_its_own_id() -> None:
    net = _network(5)
    net.kill(2)
    net.run(6.0)
    old = net.name(2)
    number = net.add(via=0, seed=2, boot_ms=BOOT_MS + 60_000)
    assert net.name(number) == old
    assert _seconds_until(net, number, "alive", 5.0) < 2.0


def test_a_restart_with_a_clock_that_went_back_is_believed_too() -> None:
    net = _network(5)
    net.kill(2)
    net.run(6.0)
    number = net.add(via=0, seed=2, boot_ms=BOOT_MS - 3_600_000)
    assert _seconds_until(net, number, "alive", 10.0) < 3.0


def test_a_partition_heals() -> None:
    net = _network(6)
    left, right = set(range(3)), set(range(3, 6))
    net.part(left, right)
    net.run(45.0)
    assert net.believers(5, "dead") == 3
    net.cut.clear()
    net.run(45.0)
    assert all(set(net.knows(number).values()) == {"alive"} for number in net.living())
    assert all(len(net.knows(number)) == 6 for number in net.living())


def test_two_networks_that_meet_become_one() -> None:
    net = _network(5)
    other = net.add()
    for _ in range(4):
        net.add(via=other)
    net.run(5.0)
    net.nodes[2].gossip.pull_from(net.nodes[7].identity.node)
    net.run(5.0)
    assert all(len(net.knows(number)) == 10 for number in net.living())


def test_an_observer_sees_what_the_node_sees() -> None:
    net = _network(5)
    net.kill(4)
    net.run(6.0)
    records, rumours = net.look(0)
    seen = {bytes(one.record.node): one.liveness for one in members_from_push(records, rumours, 0)}
    assert len(seen) == 5
    assert [name for name, liveness in seen.items() if liveness == "dead"] == [
        net.nodes[4].identity.node
    ]
    net.run(5.0)
    assert len(net.knows(0)) == 5


def test_an_idle_network_is_quiet() -> None:
    net = _network(20)
    net.run(10.0)
    before = net.bytes_sent
    net.run(30.0)
    assert (net.bytes_sent - before) / 30 / 20 < 1000


def _trace(seed: int) -> str:
    net = _network(10, seed, loss=0.05)
    net.kill(3)
    net.pause(4, 3.0)
    net.run(10.0)
    return net.trace


def test_the_same_seed_gives_the_same_trace() -> None:
    assert _trace(5) == _trace(5)
    assert _trace(5) != _trace(6)


@pytest.mark.slow
def test_fifty_nodes_through_a_bad_day() -> None:
    net = _network(50, loss=0.02)
    net.kill(49)
    assert _seconds_until(net, 49, "dead", 30.0) < 6.0
    net.kill(48, silent=True)
    assert _seconds_until(net, 48, "dead", 60.0) < 20.0
    for number in range(10):
        net.pause(number, 5.0)
        net.run(4.0)
    net.leave(47)
    assert _seconds_until(net, 47, None, 5.0) < 2.0
    net.run(20.0)
    died = {text for _, text in net.told("died")}
    assert died == {f"{net.name(49)} died", f"{net.name(48)} died"}
