"""The meter: rates of the last seconds, and the speed that stays known when nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.services.meter import WINDOW_S, Meter
from tests.services.scripted_executor import FakeClock

if TYPE_CHECKING:
    from tests.services.scheduler_desk import Desk


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


def test_a_slow_pass_among_many_does_not_make_a_host_slow() -> None:
    meter = Meter(FakeClock())
    for _ in range(20):
        meter.add(1, 0.010, short=True)
    meter.add(1, 3.0, short=True)
    assert meter.step_ms() == 10.0


async def test_passes_of_many_rows_of_a_session_tell_nothing_of_a_step(desk: Desk) -> None:
    """Such as audits, replays and guesses are, though they run together with single rows."""
    one, other = await desk.lanes(2)
    desk.give(one)
    await desk.take_all(one)
    usual = desk.meter.step_ms()
    assert usual == pytest.approx(10.0)
    desk.executor.clock.now += WINDOW_S + 1
    for rows in (2, 8):
        desk.give(other, rows)
        await desk.take_all(other)
    assert [kind for kind, *_ in desk.executor.passes()] == ["run"] * 3
    assert desk.meter.tokens_per_s() > 0
    assert desk.meter._samples
    assert not any(each.short for each in desk.meter._samples)
    assert desk.meter.step_ms() == usual
