"""Outcomes that are taken in the very call that has them, and passes run in the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.errors import Refused
from diffuse_core.services.lane import Lane
from diffuse_core.services.pass_costs import REMEMBERED
from diffuse_core.services.scheduler import SHARED
from tests.services.scripted_executor import WHOLE

if TYPE_CHECKING:
    from diffuse_core.model_ports import StageResult
    from tests.services.scheduler_desk import Desk


class Taking:
    """A taker that keeps what it gets, and answers as it is told."""

    def __init__(self, answer: object = True) -> None:
        self.answer = answer
        self.got: list[tuple[StageResult, bool]] = []

    def __call__(self, result: StageResult, *, soon: bool) -> bool:
        self.got.append((result, soon))
        if isinstance(self.answer, Exception):
            raise self.answer
        return bool(self.answer)


async def waiting(desk: Desk, lane: Lane, taker: Taking) -> asyncio.Task[object]:
    """Somebody who waits for the lane's next outcome."""
    task = asyncio.ensure_future(desk.scheduler.outcome(lane, taker))
    await asyncio.sleep(0)
    return task


async def brief(desk: Desk, count: int = 1) -> list[Lane]:
    """Sessions at a scheduler that runs their passes in the event loop."""
    desk.executor.short_s = 0.001
    lanes = await desk.lanes(count)
    for _ in range(REMEMBERED):
        for lane in lanes:
            desk.give(lane)
        for lane in lanes:
            await desk.take(lane)
    desk.compute.in_loop = True
    desk.executor.calls.clear()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return lanes


async def test_who_waits_is_not_woken_by_what_is_taken(desk: Desk) -> None:
    (lane,) = await brief(desk)
    taker = Taking()
    task = await waiting(desk, lane, taker)
    for count in (1, 2, 3):
        desk.give(lane)
        await asyncio.sleep(0)
        # One turn of the event loop, and it had its pass and was taken.
        assert len(taker.got) == count
    assert not task.done()
    assert [soon for _, soon in taker.got] == [False] * 3
    task.cancel()


async def test_who_waits_is_woken_where_something_is_left_to_do(desk: Desk) -> None:
    (lane,) = await brief(desk)
    task = await waiting(desk, lane, Taking(answer=False))
    desk.give(lane)
    step, left = await task
    assert step.position == REMEMBERED
    assert left is None
    desk.give(lane)
    await desk.take(lane)


@pytest.mark.parametrize("error", [Refused("no", "lost"), ValueError("a defect")])
async def test_who_waits_gets_the_errors_of_a_taker(desk: Desk, error: Exception) -> None:
    lane, other = await brief(desk, 2)
    task = await waiting(desk, lane, Taking(answer=error))
    desk.give(lane)
    desk.give(other)
    with pytest.raises(type(error), match=str(error)):
        await task
    await desk.take(other)


async def test_what_the_executor_refuses_is_raised_and_not_taken(desk: Desk) -> None:
    (lane,) = await brief(desk)
    taker = Taking()
    task = await waiting(desk, lane, taker)
    desk.executor.refuse.add(lane.session)
    desk.give(lane)
    with pytest.raises(Refused):
        await task
    assert taker.got == []


async def test_an_outcome_is_taken_only_while_somebody_waits_for_the_next_one(desk: Desk) -> None:
    (lane,) = await brief(desk)
    taker = Taking()
    desk.give(lane)
    await asyncio.sleep(0)
    await desk.take(lane)
    task = await waiting(desk, lane, taker)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    desk.give(lane)
    await asyncio.sleep(0)
    await desk.take(lane)
    assert taker.got == []


async def test_outcomes_stay_in_order_when_one_left_something_to_do(desk: Desk) -> None:
    (lane,) = await brief(desk)
    taker = Taking(answer=False)
    task = await waiting(desk, lane, taker)
    desk.give(lane)
    desk.give(lane)
    step, left = await task
    assert (step.position, left, len(taker.got)) == (REMEMBERED, None, 1)
    # The second came before who waits had looked: it is not taken ahead of what is left to do.
    await desk.take(lane)


async def test_nothing_runs_after_the_end(desk: Desk) -> None:
    early, late = await brief(desk, 2)
    desk.give(early)
    stopping = asyncio.ensure_future(desk.scheduler.stop())
    await asyncio.sleep(0)
    desk.executor.calls.clear()
    await stopping
    desk.give(late)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert desk.executor.calls == []


async def test_what_a_pass_gave_several_is_sent_on_soon(desk: Desk) -> None:
    lanes = await brief(desk, 3)
    takers = [Taking() for _ in lanes]
    tasks = [await waiting(desk, lane, taker) for lane, taker in zip(lanes, takers, strict=True)]
    for lane in lanes:
        desk.give(lane)
    await asyncio.sleep(0)
    assert [soon for taker in takers for _, soon in taker.got] == [True] * 3
    assert len(desk.executor.short_passes()) == 1
    for task in tasks:
        task.cancel()


async def test_a_taker_may_bring_the_next_step(desk: Desk) -> None:
    (lane,) = await brief(desk)
    left = 4

    def taker(result: StageResult, *, soon: bool) -> bool:
        nonlocal left
        del result, soon
        left -= 1
        if left:
            desk.give(lane)
        return left > 0

    desk.give(lane)
    step, _ = await desk.scheduler.outcome(lane, taker)
    assert (left, step.position) == (0, REMEMBERED + 3)
    assert len(desk.executor.short_passes()) == 4


@pytest.mark.parametrize(
    ("sessions", "stages", "passes"),
    [
        (8, 1, [8]),
        (8, 2, [4, 4]),
        (7, 2, [4, 3]),
        (9, 3, [4, 4, 1]),
        (SHARED, 2, [SHARED]),
        (30, 3, [10, 10, 10]),
    ],
)
async def test_many_are_run_in_as_many_groups_as_there_are_stages(
    desk: Desk, sessions: int, stages: int, passes: list[int]
) -> None:
    lanes = [Lane(f"{number:02}".encode(), stages) for number in range(sessions)]
    for lane in lanes:
        await desk.scheduler.open(lane, WHOLE, 10_000)
        desk.given[lane] = []
    for lane in lanes:
        desk.give(lane)
    for lane in lanes:
        await desk.take_all(lane)
    assert list(map(len, desk.executor.short_passes())) == passes
