"""Where work runs: on the thread, or at once in the event loop, and never both at a time."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.services.compute import ComputeThread

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = threading.get_ident


@pytest.fixture
def compute() -> Iterator[ComputeThread]:
    thread = ComputeThread()
    thread.in_loop = True
    yield thread
    thread.close()


async def test_work_runs_on_the_thread_and_brief_work_in_the_loop(compute: ComputeThread) -> None:
    assert await compute.run(HERE) != HERE()
    assert await compute.run(HERE, brief=True) == HERE()


async def test_brief_work_runs_on_the_thread_where_the_loop_may_not_compute(
    compute: ComputeThread,
) -> None:
    compute.in_loop = False
    assert await compute.run(HERE, brief=True) != HERE()


async def test_brief_work_comes_after_what_was_asked_for_before(compute: ComputeThread) -> None:
    gate, order = threading.Event(), []
    compute.post(lambda: (gate.wait(5), order.append("posted")))
    brief = asyncio.ensure_future(compute.run(lambda: order.append("brief"), brief=True))
    await asyncio.sleep(0)
    assert order == []
    gate.set()
    await brief
    assert order == ["posted", "brief"]


async def test_work_given_up_before_it_began_does_not_let_brief_work_in_early(
    compute: ComputeThread,
) -> None:
    gate = threading.Event()
    compute.post(lambda: gate.wait(5))
    waiting = asyncio.ensure_future(compute.run(HERE))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    brief = asyncio.ensure_future(compute.run(HERE, brief=True))
    await asyncio.sleep(0)
    assert not brief.done()
    gate.set()
    assert await brief != HERE()
    assert await compute.run(HERE, brief=True) == HERE()


async def test_errors_come_to_whoever_waits(compute: ComputeThread) -> None:
    def fail() -> None:
        raise ValueError("bad")

    for brief in (False, True):
        with pytest.raises(ValueError, match="bad"):
            await compute.run(fail, brief=brief)
