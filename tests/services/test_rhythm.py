"""When it is worth to stay awake for the next row."""

from __future__ import annotations

import asyncio

import pytest

from diffuse_core.services.rhythm import LEEWAY, LONGEST_S, REMEMBERED, Rhythm
from tests.services.scheduler_desk import Desk


def paused(rhythm: Rhythm, seconds: float) -> float:
    """One pause; what was said when it began."""
    said = rhythm.ended(10.0)
    rhythm.began(10.0 + seconds)
    return said


def test_nobody_stays_awake_before_a_rhythm_is_known() -> None:
    rhythm = Rhythm()
    assert [paused(rhythm, 0.01) for _ in range(REMEMBERED)] == [0.0] * REMEMBERED
    assert rhythm.ended(0.0) == pytest.approx(LEEWAY * 0.01)


def test_it_is_judged_by_the_longest_of_the_last_pauses() -> None:
    rhythm = Rhythm()
    for seconds in (0.02, 0.001, 0.001, 0.001, 0.001):
        paused(rhythm, seconds)
    assert paused(rhythm, 0.001) == pytest.approx(LEEWAY * 0.02)
    assert rhythm.ended(0.0) == pytest.approx(LEEWAY * 0.001)


def test_one_long_pause_ends_it_until_it_is_forgotten() -> None:
    rhythm = Rhythm()
    for _ in range(REMEMBERED):
        paused(rhythm, LONGEST_S)
    assert paused(rhythm, LONGEST_S * 1.01) > 0
    assert [paused(rhythm, 0.001) for _ in range(REMEMBERED)] == [0.0] * REMEMBERED
    assert rhythm.ended(0.0) > 0


def test_work_that_follows_on_work_is_no_pause() -> None:
    rhythm = Rhythm()
    for at in range(100):
        rhythm.began(float(at))
    assert rhythm.ended(200.0) == 0.0


class WakefulLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.awake: list[float] = []

    def stay_awake(self, seconds: float) -> None:
        self.awake.append(seconds)


async def _rounds(count: int) -> None:
    desk = Desk()
    (lane,) = await desk.lanes(1)
    for _ in range(count):
        desk.give(lane)
        await desk.take(lane)
        for _ in range(10):
            # Until the scheduler found that there is nothing to run.
            await asyncio.sleep(0)
        desk.clock.now += 0.008
    await desk.scheduler.stop()
    desk.compute.close()


def test_a_scheduler_tells_a_loop_that_can_stay_awake_how_long() -> None:
    with asyncio.Runner(loop_factory=WakefulLoop) as runner:
        loop = runner.get_loop()
        runner.run(_rounds(REMEMBERED - 1))
        assert isinstance(loop, WakefulLoop)
        assert loop.awake == []
        runner.run(_rounds(REMEMBERED + 4))
        assert loop.awake[-1] == pytest.approx(LEEWAY * 0.008)
