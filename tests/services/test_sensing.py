"""Sensors are asked beside everything else: seldom, one at a time, and not for ever."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from diffuse_core.ports import SensorSample
from diffuse_core.services import sensing
from diffuse_core.services.sensing import LOOK_S, OVERDUE_S, Sensing

if TYPE_CHECKING:
    import pytest


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Sensors:
    """Answers with how often it was asked, when the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = threading.Event()
        self.open.set()

    def sample(self) -> SensorSample:
        self.asked += 1
        self.open.wait(5)
        return SensorSample(disk_free=self.asked)


def answered(watch: Sensing) -> None:
    watch._asking.join(5)


def test_asked_at_most_once_a_second() -> None:
    clock, sensors = Clock(), Sensors()
    watch = Sensing(sensors, clock)
    watch.latest()
    answered(watch)
    assert watch.latest() == SensorSample(disk_free=1)
    clock.now += LOOK_S / 2
    assert watch.latest() == SensorSample(disk_free=1)
    clock.now += LOOK_S
    watch.latest()
    answered(watch)
    assert watch.latest() == SensorSample(disk_free=2)
    assert sensors.asked == 2


def test_what_hangs_is_waited_for_by_nobody() -> None:
    clock, sensors = Clock(), Sensors()
    watch = Sensing(sensors, clock)
    watch.latest()
    answered(watch)
    sensors.open.clear()
    clock.now += LOOK_S
    watch.latest()
    clock.now += OVERDUE_S
    assert watch.latest() == SensorSample(disk_free=1)
    # What is known is old by now; and a second thread would hang as well.
    clock.now += 1
    assert watch.latest() == SensorSample()
    assert sensors.asked == 2
    sensors.open.set()
    answered(watch)
    watch.latest()
    answered(watch)
    assert watch.latest() == SensorSample(disk_free=3)


def test_a_defect_of_a_sensor_is_told_and_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def sample(self) -> SensorSample:
            raise ZeroDivisionError

    told = []
    monkeypatch.setattr(sensing.log, "exception", told.append)
    watch = Sensing(Broken(), Clock())
    watch.latest()
    answered(watch)
    assert watch.latest() == SensorSample()
    assert len(told) == 1


def test_without_sensors() -> None:
    assert Sensing(None, Clock()).latest() == SensorSample()
