"""The weather does what it is told, and nodes feel it."""

from __future__ import annotations

import random

import pytest
from gathering import gather
from simulated_network import MAX_MAIL
from weather import LONGEST_DELAY_S, Link, Weather, heavy_tail, lognormal, uniform

from diffuse_core.domain.identity import NodeId

A, B, C = (NodeId(bytes([number]) * 32) for number in range(3))
COUNT = 4000


def _arrivals(weather: Weather, sender: NodeId = A, receiver: NodeId = B) -> list[float]:
    return [delay for _ in range(COUNT) for delay in weather.fate(sender, receiver)]


def _weather(**given: float) -> Weather:
    return Weather(random.Random(1), **given)


def test_losses_and_copies_are_as_many_as_asked_for() -> None:
    assert len(_arrivals(_weather())) == COUNT
    assert len(_arrivals(_weather(loss=0.1))) == pytest.approx(0.9 * COUNT, rel=0.03)
    assert len(_arrivals(_weather(duplicates=0.2))) == pytest.approx(1.2 * COUNT, rel=0.03)


def test_some_are_held_back() -> None:
    late = [delay for delay in _arrivals(_weather(reorder=0.1, reorder_s=5.0)) if delay > 0.02]
    assert len(late) == pytest.approx(0.1 * COUNT, rel=0.15)
    assert max(late) > 4.0


@pytest.mark.parametrize(
    ("delay", "median", "tail"),
    [(uniform(0.1, 0.3), 0.2, 0.3), (lognormal(0.05), 0.05, 0.3), (heavy_tail(0.01), 0.016, 2.0)],
)
def test_delays_have_their_distribution(delay: object, median: float, tail: float) -> None:
    found = sorted(_arrivals(Weather(random.Random(1), delay=delay)))
    assert found[COUNT // 2] == pytest.approx(median, rel=0.1)
    assert found[-1] == pytest.approx(tail, rel=1.0)
    assert found[-1] <= LONGEST_DELAY_S


def test_a_link_may_lose_in_one_direction_only() -> None:
    weather = _weather()
    weather.links[A, B] = Link(loss=1.0)
    assert _arrivals(weather) == []
    assert len(_arrivals(weather, B, A)) == COUNT
    weather.links[A, B] = Link(delay=uniform(3.0, 3.0))
    assert set(_arrivals(weather)) == {3.0}


def test_deaf_and_mute_nodes_lose_on_all_their_links() -> None:
    weather = _weather()
    weather.deaf[B] = 0.5
    assert len(_arrivals(weather)) == pytest.approx(0.5 * COUNT, rel=0.06)
    assert len(_arrivals(weather, B, A)) == COUNT
    weather.mute[A] = 0.5
    assert len(_arrivals(weather)) == pytest.approx(0.25 * COUNT, rel=0.1)


def test_groups_hear_themselves_only_until_healed() -> None:
    weather = _weather()
    weather.part([A], [B])
    assert _arrivals(weather) == []
    assert len(_arrivals(weather, A, C)) == COUNT
    weather.cut.add(frozenset((A, C)))
    assert _arrivals(weather, A, C) == []
    weather.heal()
    assert len(_arrivals(weather)) == len(_arrivals(weather, A, C)) == COUNT


def test_a_paused_node_finds_its_mail() -> None:
    net = gather(1, 4, settle=2.0)
    net.pause(1, 3.0)
    net.run(2.9)
    waiting = len(net.nodes[1].mail)
    assert 0 < waiting < MAX_MAIL
    net.run(0.2)
    assert net.nodes[1].mail == []
    assert set(net.knows(1).values()) == {"alive"}


def test_a_slow_node_takes_its_time() -> None:
    net = gather(1, 4, settle=0.0)
    net.nodes[1].slowness = 0.2
    net.run(20.0)
    slow, quick = (
        next(one.rtt_s for one in net.members(0) if one.record.node == net.nodes[number].id)
        for number in (1, 2)
    )
    assert slow is not None
    assert quick is not None
    assert slow > 5 * quick


def test_clocks_that_drift_and_processes_that_start_again() -> None:
    net = gather(1, 5, settle=1.0)
    number = net.add(via=0, drift=0.01, wall_offset=7200.0)
    net.run(10.0)
    assert net.nodes[number].local(net.now) - net.nodes[number].clock_offset == pytest.approx(
        net.now * 1.01
    )
    net.kill(2)
    net.run(4.0)
    assert net.believers(2, "dead") == 5
    net.restart(2, via=0)
    net.run(4.0)
    assert net.believers(2, "alive") == 5
    assert len(net.knows(2)) == 6
