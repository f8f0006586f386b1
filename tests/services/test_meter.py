"""The meter: rates of the last seconds, and the speed that stays known when nothing runs."""

from __future__ import annotations

from diffuse_core.services.meter import WINDOW_S, Meter
from tests.services.scripted_executor import FakeClock


def test_speed_stays_known_and_waiting_does_not() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    assert (meter.step_ms(), meter.wait_ms(), meter.tokens_per_s()) == (0.0, 0.0, 0.0)
    meter.add(1, 0.010, short=True)
    meter.add(2, 0.030, short=True)
    meter.add(256, 1.0, short=False)
    meter.waited(0.004)
    meter.waited(0.008)
    assert (meter.step_ms(), meter.wait_ms()) == (20.0, 6.0)
    clock.now += WINDOW_S + 1
    assert (meter.step_ms(), meter.wait_ms(), meter.tokens_per_s()) == (20.0, 0.0, 0.0)
    meter.add(1, 0.005, short=True)
    meter.waited(0.001)
    assert (meter.step_ms(), meter.wait_ms()) == (5.0, 1.0)
