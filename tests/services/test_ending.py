"""The end of a node: every request reaches the Host, and nothing keeps a node for ever."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from diffuse_core.services import ending
from diffuse_core.services.ending import Ending
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Leaving:
    """A Host that leaves when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[float | None] = []
        self.left = asyncio.Event()

    async def leave(self, patience: float | None) -> None:
        self.asked.append(patience)
        await self.left.wait()


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
    async with asyncio.timeout(2):
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
    async with asyncio.timeout(2):
        await over


async def test_a_signal_counts_also_while_the_owner_is_patient(
    end: Ending, leaving: Leaving
) -> None:
    signal = asyncio.Event()
    over = asyncio.create_task(end.over(signal))
    end.ask(600.0)
    await until(lambda: leaving.asked == [600.0])
    signal.set()
    end.ask(0.0)
    await until(lambda: len(leaving.asked) == 3)
    assert leaving.asked[0] == 600.0
    assert set(leaving.asked[1:]) == {None, 0.0}
    assert not over.done()
    leaving.left.set()
    async with asyncio.timeout(2):
        await over


async def test_requests_do_not_pile_up(
    end: Ending, leaving: Leaving, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        end.ask(5.0)
    await asyncio.sleep(0)
    assert len(leaving.asked) == ending.MAX_REQUESTS
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_host_that_fails_to_leave_keeps_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def leave(_patience: float | None) -> None:
        raise RuntimeError("a defect")

    end = Ending(leave)
    end.ask()
    async with asyncio.timeout(2):
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
