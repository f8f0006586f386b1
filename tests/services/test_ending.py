"""The end of a node: every request reaches the Host, and nothing keeps a node for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.services.ending import Ending
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Leaving:
    """A Host that leaves when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[float | None] = []
        self.left = asyncio.Event()
        self.still = 0

    async def leave(self, patience: float | None) -> None:
        self.asked.append(patience)
        self.still += 1
        try:
            await self.left.wait()
        finally:
            self.still -= 1


@pytest.fixture
async def leaving() -> Leaving:
    return Leaving()


@pytest.fixture
async def end(leaving: Leaving) -> AsyncIterator[Ending]:
    made = Ending(leaving.leave)
    yield made
    await made.close()


async def test_a_node_that_is_no_host_ends_when_asked() -> None:
    end, signal = Ending(), asyncio.Event()
    over = asyncio.create_task(end.over(signal))
    await asyncio.sleep(0)
    assert not over.done()
    end.ask(60.0)
    async with asyncio.timeout(10):
        await over
    assert end.asked.is_set()
    await end.close()


async def test_a_signal_leaves_the_time_to_the_host(end: Ending, leaving: Leaving) -> None:
    signal = asyncio.Event()
    over = asyncio.create_task(end.over(signal))
    signal.set()
    await until(lambda: leaving.asked == [None])
    assert not over.done()
    leaving.left.set()
    async with asyncio.timeout(10):
        await over


async def test_a_signal_gives_what_it_was_said_to_give(leaving: Leaving) -> None:
    end, signal = Ending(leaving.leave, 120.0), asyncio.Event()
    over = asyncio.create_task(end.over(signal))
    signal.set()
    await until(lambda: leaving.asked == [120.0])
    # The owner's usual request is for an earlier end.
    end.ask()
    await until(lambda: leaving.asked == [120.0, None])
    leaving.left.set()
    async with asyncio.timeout(10):
        await over
    await end.close()


async def test_a_signal_counts_also_while_the_owner_is_patient(
    end: Ending, leaving: Leaving
) -> None:
    signal = asyncio.Event()
    over = asyncio.create_task(end.over(signal))
    end.ask(600.0)
    await until(lambda: leaving.asked == [600.0])
    signal.set()
    await until(lambda: leaving.asked == [600.0, None])
    end.ask(0.0)
    await until(lambda: leaving.asked == [600.0, None, 0.0])
    assert not over.done()
    leaving.left.set()
    async with asyncio.timeout(10):
        await over


@pytest.mark.parametrize("step", [0.0, 0.5])
async def test_however_many_ask_one_task_works_and_the_next_is_heard(
    end: Ending, leaving: Leaving, caplog: pytest.LogCaptureFixture, step: float
) -> None:
    over = asyncio.create_task(end.over(signal := asyncio.Event()))
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    for number in range(1000):
        end.ask(600.0 - step * number)
    await until(lambda: leaving.asked == [600.0 - step * 999])
    for number in range(20):
        end.ask(90.0 - number)
        await until(lambda number=number: leaving.asked[-1] == 90.0 - number)
    assert leaving.still == 1
    # Its owner, the Host's leaving, what waits for an earlier end; and two of `over`.
    assert len(asyncio.all_tasks() - before) <= 5
    signal.set()
    await until(lambda: leaving.asked[-1] is None)
    end.ask(0.0)
    await until(lambda: leaving.asked[-1] == 0.0)
    assert not caplog.records
    leaving.left.set()
    async with asyncio.timeout(10):
        await over


async def test_who_asks_for_a_later_end_changes_nothing(end: Ending, leaving: Leaving) -> None:
    end.ask(5.0)
    await until(lambda: leaving.asked == [5.0])
    for patience in (600.0, None):
        end.ask(patience)
    end.ask(0.0)
    await until(lambda: leaving.still == 1 and len(leaving.asked) > 1)
    assert leaving.asked == [5.0, 0.0]


async def test_a_host_that_fails_to_leave_keeps_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def leave(_patience: float | None) -> None:
        raise RuntimeError("a defect")

    end = Ending(leave)
    end.ask()
    async with asyncio.timeout(10):
        await end.over(asyncio.Event())
    await end.close()
    assert "a defect" in caplog.text


async def test_who_waits_may_give_up(end: Ending, leaving: Leaving) -> None:
    before = asyncio.all_tasks()
    over = asyncio.create_task(end.over(asyncio.Event()))
    await asyncio.sleep(0)
    over.cancel()
    await asyncio.wait([over])
    await until(lambda: asyncio.all_tasks() <= before)
    assert leaving.asked == []
