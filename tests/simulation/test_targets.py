"""What a thousand nodes must do, asserted loosely of a hundred; see tests/bench/network.py."""

from __future__ import annotations

import pytest
from gathering import gather
from scenarios import false_deaths, rounds_to_join, rounds_to_know, seconds_to_be_gone, traffic
from scenarios_of_strife import half_deaf, liars, partition
from watching import Watch

NODES = 100


@pytest.mark.slow
def test_a_new_record_is_known_in_few_rounds(seed: int) -> None:
    figures = rounds_to_know(seed, NODES)
    assert figures["rounds_99"] <= 9
    assert figures["rounds_all"] <= 13


@pytest.mark.slow
def test_a_newcomer_knows_all_and_is_known(seed: int) -> None:
    figures = rounds_to_join(seed, NODES)
    assert 0 < figures["rounds_newcomer_knows"] <= 7
    assert 0 < figures["rounds_newcomer_known"] <= 9


@pytest.mark.slow
@pytest.mark.parametrize("silent", [True, False])
def test_the_dead_are_gone_from_every_view(seed: int, silent: bool) -> None:
    figures = seconds_to_be_gone(seed, NODES, silent=silent, kills=2)
    assert figures["gone_p50_s"] <= (16 if silent else 5)
    assert figures["gone_p99_s"] <= (30 if silent else 10)
    assert figures["false_deaths"] == 0


@pytest.mark.slow
def test_pauses_and_losses_kill_nobody(seed: int) -> None:
    figures = false_deaths(seed, NODES, seconds=80.0, share=0.2)
    assert figures["pauses"] > 20
    assert figures["false_deaths"] == 0
    assert figures["suspicions_per_node_and_minute"] < 3
    assert figures["bytes_per_node_and_s"] < 4000


@pytest.mark.slow
def test_traffic_stays_small(seed: int) -> None:
    assert traffic(seed, NODES, busy=False, seconds=60.0)["bytes_per_node_and_s"] < 2000
    assert traffic(seed, NODES, busy=True, seconds=20.0)["bytes_per_node_and_s"] < 21_000


@pytest.mark.slow
def test_halves_become_one_again_without_flapping(seed: int) -> None:
    figures = partition(seed, 40, seconds=90.0)
    assert figures["pairs_apart"] > 0.99
    assert figures["one_view_s"] <= 30
    assert figures["flaps"] == 0


@pytest.mark.slow
def test_who_hears_only_half_makes_nobody_dead(seed: int) -> None:
    figures = half_deaf(seed, 40, seconds=90.0)
    assert figures["dead_for_others"] == figures["deaf_dead_for_others"] == 0
    assert figures["dead_for_the_deaf"] == 0


@pytest.mark.slow
def test_liars_are_not_believed(seed: int) -> None:
    figures = liars(seed, 40, seconds=10.0)
    assert figures["lies"] > 100
    assert figures["malformed"] > 0
    assert figures["forged_held"] == figures["future_held"] == 0
    assert figures["honest_held_dead_by_honest"] == 0
    assert figures["largest_table"] <= figures["table_cap"]
    assert figures["honest_missing"] < 0.01
    assert figures["routes_found"] >= 0.999


@pytest.mark.slow
def test_a_pause_of_four_seconds_is_no_news_and_met_by_few_pings(seed: int) -> None:
    net = gather(seed, 60, loss=0.1, settle=3.0)
    watch = Watch(net)
    for number in range(3):
        net.pause(number, 4.0)
        net.run(3.99)
        pings = sum(letter.kind == "Ping" for letter in net.nodes[number].mail)
        assert pings < 60  # a thundering herd would be several from each
        net.run(3.0)
    assert watch.deaths == []
    assert 0 < watch.suspicions < 40  # of 3 * 59 observers
    assert all(set(net.knows(number).values()) == {"alive"} for number in range(10))


@pytest.mark.slow
def test_who_was_paused_does_not_accuse_the_others(seed: int) -> None:
    net = gather(seed, 40, loss=0.1, settle=3.0)
    net.pause(1, 60.0)
    net.run(59.9)
    assert net.believers(1, "dead") == 39
    watch = Watch(net)
    net.run(15.0)
    assert watch.false_deaths == []
    assert net.believers(1, "alive") == 39
    assert set(net.knows(1).values()) == {"alive"}
