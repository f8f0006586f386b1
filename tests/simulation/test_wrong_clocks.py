"""Wrong clocks: nodes whose wall clocks are hours apart become one network and stay one."""

from __future__ import annotations

import pytest
from simulated_network import BOOT_MS, SimulatedNetwork

from diffuse_core.domain.records import first_sequence

HOURS = 5 * 3600.0


def _network(*offsets: float, seed: int = 1) -> SimulatedNetwork:
    """Nodes that join one after the other, each with a wall clock that is so many seconds off."""
    net = SimulatedNetwork(seed)
    for number, offset in enumerate(offsets):
        net.add(via=0 if number else None, wall_offset=offset)
        net.run(3.0)
    return net


def _agree(net: SimulatedNetwork, *, capacity: int | None = None) -> bool:
    everybody = {net.name(number) for number in net.living()}
    views = [net.knows(number) for number in net.living()]
    if any(set(view) != everybody or set(view.values()) != {"alive"} for view in views):
        return False
    return capacity is None or all(
        member.record.capacity == capacity
        for number in net.living()
        for member in net.members(number)
    )


@pytest.mark.parametrize("offset", [HOURS, -HOURS])
@pytest.mark.parametrize("others", [1, 2, 3, 6])
def test_a_node_whose_clock_is_hours_off_joins(offset: float, others: int) -> None:
    net = _network(*[0.0] * others)
    net.add(via=0, wall_offset=offset)
    net.run(12.0)
    assert _agree(net)
    for number in net.living():
        net.say(number, capacity=7)
    net.run(3.0)
    assert _agree(net, capacity=7)
    net.run(60.0)
    assert _agree(net)
    assert not net.told("died")
    rebased = net.told("clock is far ahead")
    assert len(rebased) == (1 if offset > 0 and others > 1 else 0)


@pytest.mark.parametrize(
    "offsets",
    [
        (HOURS, 0.0, 0.0),
        (HOURS, HOURS, 0.0, 0.0, 0.0, 0.0),
        (-HOURS, 0.0, 0.0, 0.0),
        (0.0, -HOURS, -HOURS, 0.0),
        (HOURS, 0.0, -HOURS, HOURS, 0.0, -HOURS),
        (0.0, HOURS, 2 * HOURS, 3 * HOURS),
    ],
)
def test_nodes_with_all_kinds_of_clocks_become_one_network(offsets: tuple[float, ...]) -> None:
    net = _network(*offsets)
    net.run(20.0)
    assert _agree(net)
    for number in net.living():
        net.say(number, capacity=7)
    net.run(12.0)
    assert _agree(net, capacity=7)
    net.run(60.0)
    assert _agree(net)
    assert not net.told("died")
    assert len(net.told("clock is far ahead")) <= len(offsets)


@pytest.mark.parametrize(("fast", "right"), [(4, 6), (6, 4), (1, 5), (2, 5)])
def test_two_networks_with_clocks_hours_apart_become_one(fast: int, right: int) -> None:
    net = SimulatedNetwork(1)
    first = [net.add(via=0 if number else None) for number in range(right)]
    second = [net.add(wall_offset=HOURS)]
    second += [net.add(via=second[0], wall_offset=HOURS) for _ in range(fast - 1)]
    net.run(20.0)
    assert set(net.knows(first[0])) == {net.name(number) for number in first}
    node = net.nodes[second[-1]]
    node.gossip.pull_from(net.nodes[first[-1]].id)
    net.after(node)
    net.run(45.0)
    assert _agree(net)
    for number in net.living():
        net.say(number, capacity=7)
    net.run(12.0)
    assert _agree(net, capacity=7)


def test_no_record_in_a_large_network_lies_in_its_future() -> None:
    net = _network(*[0.0] * 6, HOURS)
    net.run(20.0)
    now = first_sequence(BOOT_MS + int(net.now * 1000) + 1)
    assert all(member.record.sequence < now for member in net.members(0))
