"""Waiting awake: events and timers as ever, and off as soon as somebody else wants the core."""

from __future__ import annotations

import os
import selectors
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.wakeful_loop import (
    LOST_S,
    MOST_S,
    PAUSE_S,
    WakefulLoop,
    WakefulSelector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Machine:
    """A clock that asking moves, and a count of the questions; asleep it moves to the end."""

    def __init__(self) -> None:
        self.now = 50.0
        self.asked = 0
        self.slept: list[float | None] = []
        self.stolen = 0.0
        self.ready_at = 1e9

    def monotonic(self) -> float:
        return self.now

    def ask(self, timeout: float | None) -> list[str]:
        if timeout == 0:
            self.asked += 1
            self.now += 5e-6 + self.stolen
        else:
            self.slept.append(timeout)
            self.now = self.ready_at if timeout is None else self.now + timeout
        return ["event"] if self.now >= self.ready_at else []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()

    def select(_selector: object, timeout: float | None = None) -> list[str]:
        return found.ask(timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    return found


@pytest.fixture
def selector(machine: Machine) -> Iterator[WakefulSelector]:
    made = WakefulSelector(machine.monotonic)
    yield made
    made.close()


def test_it_sleeps_unless_told_to_stay_awake(machine: Machine, selector: WakefulSelector) -> None:
    assert selector.select(0.5) == []
    assert (machine.asked, machine.slept) == (0, [0.5])


def test_awake_it_gets_events_without_sleeping(
    machine: Machine, selector: WakefulSelector
) -> None:
    machine.ready_at = machine.now + 0.004
    selector.stay_awake(0.01)
    assert selector.select(None) == ["event"]
    assert machine.slept == []
    assert machine.asked == pytest.approx(800, abs=2)


def test_when_nothing_comes_in_time_it_sleeps_for_the_rest(
    machine: Machine, selector: WakefulSelector
) -> None:
    begun = machine.now
    selector.stay_awake(0.01)
    assert selector.select(0.03) == []
    assert machine.slept == [pytest.approx(0.02, abs=1e-4)]
    assert machine.now - begun == pytest.approx(0.03, abs=1e-4)
    assert selector.select(0.03) == []
    assert len(machine.slept) == 2


def test_a_timer_that_is_due_sooner_is_kept_and_it_stays_awake_after_it(
    machine: Machine, selector: WakefulSelector
) -> None:
    begun = machine.now
    selector.stay_awake(0.01)
    assert selector.select(0.002) == []
    assert machine.now - begun == pytest.approx(0.002, abs=1e-4)
    asked = machine.asked
    assert selector.select(0.002) == []
    assert machine.asked > asked


def test_it_is_never_awake_for_longer_than_the_most(
    machine: Machine, selector: WakefulSelector
) -> None:
    begun = machine.now
    selector.stay_awake(1000.0)
    machine.ready_at = begun + 5.0
    assert selector.select(None) == ["event"]
    assert machine.slept == [None]
    assert machine.asked * 5e-6 == pytest.approx(MOST_S, rel=0.01)


def test_it_goes_to_sleep_for_a_while_where_somebody_else_has_the_core(
    machine: Machine, selector: WakefulSelector
) -> None:
    machine.stolen = LOST_S
    selector.stay_awake(0.05)
    assert selector.select(1.0) == []
    assert machine.asked <= 3
    assert machine.slept == [pytest.approx(1.0, abs=0.01)]
    machine.stolen, asked = 0.0, machine.asked
    selector.stay_awake(0.05)
    assert selector.select(PAUSE_S) == []
    assert machine.asked == asked
    selector.stay_awake(0.05)
    assert selector.select(1.0) == []
    assert machine.asked > asked


def test_losing_the_core_once_in_a_while_does_not_matter(
    machine: Machine, selector: WakefulSelector
) -> None:
    selector.stay_awake(0.05)
    assert selector.select(0.02) == []
    machine.stolen = LOST_S * 2
    machine.ready_at = machine.now + LOST_S
    assert selector.select(None) == ["event"]
    machine.stolen, machine.ready_at, asked = 0.0, 1e9, machine.asked
    assert selector.select(0.01) == []
    assert machine.asked > asked + 100


def test_a_loop_does_all_that_loops_do_while_it_is_awake() -> None:
    loop, order = WakefulLoop(), []
    reading, writing = os.pipe()

    def threaded(_done: object) -> None:
        order.append("thread")
        loop.call_later(0.002, timed)

    def timed() -> None:
        order.append("timer")
        loop.stay_awake(0.05)
        os.write(writing, b"x")

    def read() -> None:
        order.append(os.read(reading, 1))
        loop.stop()

    try:
        loop.add_reader(reading, read)
        loop.stay_awake(0.05)
        loop.run_in_executor(None, int).add_done_callback(threaded)
        loop.run_forever()
        assert order == ["thread", "timer", b"x"]
    finally:
        loop.remove_reader(reading)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        os.close(reading)
        os.close(writing)
