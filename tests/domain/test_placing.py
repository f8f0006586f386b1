"""Placing: from the first claim to the last Session, with every turn it can take."""

from __future__ import annotations

import math

import pytest
from domain_samples import ordered
from placement_samples import host
from placing_desk import ME, PACE, SETTLED_S, Desk, claimed, mover

from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.placing import (
    MAX_ROUNDS,
    Drain,
    Load,
    Publish,
    Resume,
    Unload,
    Withdraw,
)
from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

# --- a new Host ----------------------------------------------------------------------------


def test_a_new_host_claims_waits_loads_and_is_ready() -> None:
    desk = Desk()
    desk.hosts = [host(1, 0, 5)]
    assert desk.tick() == [Publish(Slice(5, 10), "claiming")]
    assert desk.placing.next_deadline() == pytest.approx(desk.now + 1.0)
    assert desk.tick(0.5) == []
    publish, load = desk.tick(0.51)
    assert publish == Publish(Slice(5, 10), "loading")
    assert isinstance(load, Load)
    assert load.plan.slice == Slice(5, 10)
    assert desk.placing.next_deadline() == math.inf
    assert desk.tick(60.0) == []
    desk.placing.loaded(desk.now)
    assert desk.steps() == [Publish(Slice(5, 10), "ready")]
    assert desk.placing.phase == "ready"
    assert desk.placing.wish is None


def test_a_claim_stands_longer_where_news_take_longer() -> None:
    times = [Pace().settle_time(nodes) for nodes in (0, 1, 4, 200, 1000)]
    assert times == pytest.approx([1.2, 1.2, 1.2, 2.329, 2.793], abs=0.001)


def test_the_loser_of_a_claim_plans_again_before_it_loads() -> None:
    desk = Desk()
    assert desk.tick() == [Publish(Slice(0, 5), "claiming")]
    desk.hosts = [host(1, 0, 5, "claiming")]
    assert desk.tick(SETTLED_S) == [Publish(Slice(5, 10), "claiming")]
    publish, _ = desk.tick(SETTLED_S)
    assert publish == Publish(Slice(5, 10), "loading")


def test_a_host_whose_claims_always_fall_takes_one_in_the_end() -> None:
    desk = Desk()
    desk.tick()
    for turn in range(MAX_ROUNDS):
        wish = desk.placing.wish.slice
        desk.hosts = [*desk.hosts, HostSummary(ordered(1), wish, "claiming", 10**6)]
        desk.hosts = [HostSummary(bytes([0, turn]) * 16, wish, "claiming", 10**6)]
        assert desk.tick(SETTLED_S)[-1].state == "claiming"
    wish = desk.placing.wish.slice
    desk.hosts = [HostSummary(bytes(32), wish, "claiming", 10**6)]
    assert isinstance(desk.tick(SETTLED_S)[-1], Load)


def test_what_holds_no_layer_is_an_error() -> None:
    desk = Desk(capacity=50)
    with pytest.raises(UsageError, match="one layer of this model"):
        desk.placing.plan([])
    with pytest.raises(UsageError):
        desk.tick()


def test_our_own_record_is_not_counted() -> None:
    desk = Desk(max_layers=4)
    desk.hosts = [host(ME, 0, 4)]
    assert desk.placing.plan(desk.hosts).slice == Slice(0, 4)


def test_a_failed_first_load_is_the_end() -> None:
    desk = Desk()
    desk.tick()
    desk.tick(SETTLED_S)
    assert not desk.placing.load_failed(desk.now)
    assert desk.steps() == [Withdraw()]
    assert desk.placing.phase == "ended"
    assert desk.placing.next_deadline() == math.inf


# --- moving --------------------------------------------------------------------------------


def test_a_gap_is_filled_after_three_looks_and_the_sessions() -> None:
    desk = claimed()
    assert desk.placing.held.slice == Slice(0, 5)  # still served
    assert desk.tick(SETTLED_S) == [Publish(Slice(5, 10), "loading"), Drain()]
    assert desk.tick(1.0) == []
    desk.placing.drained()
    unload, publish, load = desk.tick()
    assert (unload, publish) == (Unload(), Publish(Slice(5, 10), "loading"))
    assert load.plan.reason == "fills the gap 5:10 of 10"
    assert desk.placing.held is None
    desk.placing.loaded(desk.now)
    assert desk.steps() == [Publish(Slice(5, 10), "ready")]


def test_sessions_that_do_not_end_are_ended_at_the_deadline() -> None:
    desk = claimed()
    desk.tick(SETTLED_S)
    assert desk.tick(PACE.drain_s - 1) == []
    assert desk.tick(1.01)[0] == Unload()


def test_a_move_whose_claim_falls_costs_nothing() -> None:
    desk = claimed()
    desk.hosts.append(host(3, 5, 10, "loading"))
    assert desk.tick(SETTLED_S) == [Publish(Slice(0, 5), "ready")]
    assert desk.placing.held.slice == Slice(0, 5)


def test_nobody_moves_away_from_what_it_alone_holds() -> None:
    """The others that held our layers went while our claim stood."""
    desk = claimed()
    desk.hosts = [host(7, 0, 5, "loading"), host(8, 0, 4)]
    assert desk.tick(SETTLED_S) == [Publish(Slice(0, 5), "ready")]


def test_a_host_that_is_needed_while_it_drains_stays() -> None:
    desk = claimed()
    desk.tick(SETTLED_S)
    desk.hosts = []
    desk.placing.drained()
    assert desk.tick() == [Resume(), Publish(Slice(0, 5), "ready")]


def test_a_gap_that_closes_while_it_drains_keeps_it_too() -> None:
    desk = claimed()
    desk.tick(SETTLED_S)
    desk.hosts.append(host(3, 5, 10))
    assert desk.tick(PACE.drain_s + 1) == [Resume(), Publish(Slice(0, 5), "ready")]


def test_a_gap_that_closes_in_time_moves_nobody() -> None:
    desk = mover()
    assert desk.look(2) == []
    desk.hosts.append(host(3, 5, 10, "claiming"))
    assert desk.look(1) == []
    desk.hosts.pop()
    assert desk.look(3) == [Publish(Slice(5, 10), "claiming")]


def test_a_failed_move_goes_back_and_stays() -> None:
    desk = claimed()
    desk.tick(SETTLED_S)
    desk.placing.drained()
    desk.tick()
    assert desk.placing.load_failed(desk.now)
    publish, load = desk.steps()
    assert publish == Publish(Slice(0, 5), "loading")
    assert load.plan.slice == Slice(0, 5)
    desk.placing.loaded(desk.now)
    assert desk.steps() == [Publish(Slice(0, 5), "ready")]
    assert desk.look(20) == []
    desk.now += PACE.cool_after_failure_s
    assert desk.look(1) == [Publish(Slice(5, 10), "claiming")]


def test_going_back_may_fail_as_well() -> None:
    desk = claimed()
    desk.tick(SETTLED_S)
    desk.placing.drained()
    desk.tick()
    assert desk.placing.load_failed(desk.now)
    desk.steps()
    assert not desk.placing.load_failed(desk.now)
    assert desk.steps() == [Withdraw()]


def test_a_weak_range_is_reinforced_with_more_patience_and_a_rest_after() -> None:
    desk = Desk()
    desk.hosts = [host(1, 5, 10)]
    desk.serve()
    desk.hosts = [host(7, 5, 10), host(8, 0, 5), host(9, 0, 5)]
    (publish,) = desk.look(5)
    assert publish == Publish(Slice(5, 10), "claiming")
    assert isinstance(desk.tick(SETTLED_S)[1], Drain)
    desk.placing.drained()
    desk.tick()
    desk.placing.loaded(desk.now)
    desk.steps()
    desk.hosts = [host(7, 5, 10), host(8, 5, 10), host(9, 0, 5)]
    rest = int(PACE.cool_s / 2.01)
    assert desk.look(rest) == []
    assert desk.look(1) == [Publish(Slice(0, 5), "claiming")]


# --- with others, and when others do not ---------------------------------------------------


def test_who_is_named_and_does_not_claim_is_passed_over() -> None:
    desk = mover()
    desk.hosts = [host(1, 0, 5), host(8, 0, 5)]  # the first has the lower id
    waits = 0
    while not (steps := desk.tick(2.01)):
        waits += 1
        assert waits < 20
    assert steps == [Publish(Slice(5, 10), "claiming")]
    # Three looks and two more for the other, one to pass it over, three for us.
    assert waits * 2.01 == pytest.approx(16, abs=3)


def test_who_claims_in_time_is_not() -> None:
    desk = mover()
    desk.hosts = [host(1, 0, 5), host(8, 0, 5)]
    assert desk.look(4) == []
    desk.hosts[0] = host(1, 5, 10, "claiming")
    assert desk.look(20 // 2) == []


def test_a_claim_that_is_never_followed_by_anything_does_not_count_for_ever() -> None:
    desk = mover(target_replicas=1)
    desk.hosts.append(host(1, 5, 10, "claiming"))
    assert desk.look(int(PACE.claim_limit_s / 2.01)) == []
    steps = desk.tick(2.01) + desk.tick(2.01) + desk.tick(2.01) + desk.tick(2.01)
    assert steps == [Publish(Slice(5, 10), "claiming")]


def shifting() -> Desk:
    """Ours is 4:7, which leaves 3 to nobody; we all can do better together."""
    desk = Desk(capacity=300)
    desk.hosts = [host(1, 0, 4, capacity=700), host(9, 7, 10, capacity=600)]
    assert desk.serve() == Slice(4, 7)
    desk.hosts = [host(1, 0, 3, capacity=600), host(8, 6, 10, capacity=700)]
    return desk


def test_a_gap_that_nobody_can_be_spared_for_is_closed_together() -> None:
    desk = shifting()
    assert desk.look(7) == []
    assert desk.look(1) == [Publish(Slice(3, 6), "claiming")]
    assert desk.placing.next_deadline() == pytest.approx(desk.now + 1.0 + 6.0)
    steps = desk.tick(7.01)
    assert steps == [Publish(Slice(3, 6), "loading"), Drain()]
    desk.placing.drained()
    assert isinstance(desk.tick()[-1], Load)


def test_not_when_the_others_do_not_take_part() -> None:
    desk = shifting()
    desk.look(8)
    desk.hosts[1] = host(8, 7, 10, capacity=700)
    assert desk.tick(7.01) == [Publish(Slice(4, 7), "ready")]


def test_who_let_a_rearrangement_down_is_not_reckoned_with_in_the_next() -> None:
    desk = Desk(capacity=300)
    desk.hosts = [host(1, 0, 4, capacity=700), host(9, 7, 10, capacity=600)]
    assert desk.serve() == Slice(4, 7)
    desk.hosts = [host(1, 0, 3, capacity=600), host(8, 7, 10, capacity=700)]
    assert desk.look(8) == [Publish(Slice(3, 6), "claiming")]
    # Ours is done; that of the other, 6:10, is not.
    assert desk.tick(7.01) == [Publish(Slice(4, 7), "ready")]
    assert desk.look(20) == []


def test_a_host_that_the_layout_leaves_where_it_is_waits() -> None:
    desk = Desk(capacity=300)
    desk.hosts = [host(1, 0, 4, capacity=700), host(9, 7, 10, capacity=600)]
    desk.serve()
    desk.hosts = [host(1, 0, 4, capacity=700), host(9, 8, 10, capacity=700)]
    assert desk.look(12) == []
