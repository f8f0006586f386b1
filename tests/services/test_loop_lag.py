"""Event-loop lag: quantiles, and a real loop that is held up."""

from __future__ import annotations

import asyncio
import time

import pytest

from diffuse_core.services import loop_lag
from diffuse_core.services.loop_lag import BUCKETS, WINDOW, LagRecord, Lags, LoopLag


def test_without_a_beat_there_is_no_lag() -> None:
    assert LagRecord().lags() == Lags(0.0, 0.0, 0.0, 0.0, 0.0)


def test_quantiles_are_those_of_the_beats() -> None:
    record = LagRecord()
    for number in range(100, 0, -1):
        record.add(number / 1000)
    lags = record.lags()
    assert (lags.p50_s, lags.p99_s, lags.max_s) == (0.05, 0.099, 0.1)
    assert lags.ever_max_s == 0.1
    assert 0.099 <= lags.ever_p99_s <= 0.1


def test_a_minute_is_forgotten_and_the_start_is_not() -> None:
    record = LagRecord()
    record.add(5.0)
    for _ in range(WINDOW):
        record.add(0.001)
    lags = record.lags()
    assert lags.max_s == lags.p99_s == 0.001
    assert lags.ever_max_s == 5.0
    # One beat in 301 is not one in a hundred.
    assert lags.ever_p99_s == pytest.approx(0.001)


@pytest.mark.parametrize("late", [0.0001, 0.0004, 0.003, 0.05, 0.7, 2.0, 99.0])
def test_the_figure_since_the_start_is_exact_to_6_percent(late: float) -> None:
    record = LagRecord()
    for _ in range(99):
        record.add(late)
    record.add(1000.0)
    assert late <= record.lags().ever_p99_s * 1.000001 <= late * 1.06


@pytest.mark.parametrize("late", [-1.0, 0.0, 1e-9, 1e9])
def test_the_ends_of_the_scale_hold(late: float) -> None:
    record = LagRecord()
    record.add(late)
    assert sum(record._counts) == 1
    assert len(record._counts) == BUCKETS
    assert record.lags().max_s == max(0.0, late)


async def test_a_held_up_loop_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "BEAT_S", 0.001)
    measure = LoopLag()
    measure.start()
    await asyncio.sleep(0.005)
    time.sleep(0.06)  # noqa: ASYNC251  (what is to be noticed)
    await asyncio.sleep(0.005)
    assert 0.05 < measure.lags().max_s < 5
    measure.stop()
    measure.stop()
    before = measure.lags()
    await asyncio.sleep(0.01)
    assert measure.lags() == before
