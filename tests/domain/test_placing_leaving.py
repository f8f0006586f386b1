"""Placing: a Host that stops, at once, when its Sessions are over, or when their time is up."""

from __future__ import annotations

import pytest
from placing_desk import PACE, SETTLED_S, Desk, claimed

from diffuse_core.domain.placing import Drain, Publish, Stop, Unload
from diffuse_core.domain.slices import Slice


def test_an_idle_host_leaves_at_once() -> None:
    desk = Desk()
    part = desk.serve()
    desk.placing.leave(desk.now, 0)
    assert desk.steps() == [Publish(part, "leaving"), Unload(), Stop()]
    desk.placing.leave(desk.now, 0)
    assert desk.steps() == []
    assert desk.tick(1.0) == []


def test_a_busy_host_leaves_when_its_sessions_are_over() -> None:
    desk = Desk()
    part = desk.serve()
    desk.placing.leave(desk.now, 2)
    assert desk.steps() == [Publish(part, "leaving"), Drain()]
    assert desk.tick(PACE.stop_s - 0.1) == []
    desk.placing.drained()
    assert desk.steps() == [Unload(), Stop()]


def test_or_when_it_waited_long_enough() -> None:
    desk = Desk()
    desk.serve()
    desk.placing.leave(desk.now, 2)
    desk.steps()
    assert desk.tick(PACE.stop_s + 0.1) == [Unload(), Stop()]
    assert desk.placing.phase == "ended"


def test_its_owner_may_give_it_longer_or_no_time() -> None:
    desk = Desk()
    desk.serve()
    desk.placing.leave(desk.now, 2, patience=100.0)
    desk.steps()
    assert desk.tick(PACE.stop_s + 0.1) == []
    assert desk.placing.next_deadline() > desk.now
    # Asked again, the new time counts, and nothing is announced twice.
    desk.placing.leave(desk.now, 1, patience=50.0)
    assert desk.steps() == []
    assert desk.tick(49.9) == []
    desk.placing.leave(desk.now, 1, patience=0.0)
    assert desk.steps() == []
    assert desk.tick() == [Unload(), Stop()]


@pytest.mark.parametrize("settled", [False, True])
def test_a_host_that_holds_nothing_yet_just_stops(settled: bool) -> None:
    desk = Desk()
    desk.tick()
    if settled:
        desk.tick(SETTLED_S)
    desk.placing.leave(desk.now, 0)
    assert desk.steps() == [Unload(), Stop()]
    desk.placing.loaded(desk.now)
    desk.placing.drained()
    assert desk.steps() == []


def test_one_that_was_about_to_move_leaves_what_it_serves() -> None:
    desk = claimed()
    desk.placing.leave(desk.now, 1)
    assert desk.steps() == [Publish(Slice(0, 5), "leaving"), Drain()]
