"""Who is refused for now, and when to come back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.openai_server import ApiLimits
from diffuse_core.adapters.openai_server.errors import BUSY_RETRY_S, ApiError
from diffuse_core.adapters.openai_server.gate import MAX_RETRY_S, Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def answer(gate: Gate) -> None:
    async with gate.entered():
        pass


@asynccontextmanager
async def full(gate: Gate, waiting: int = 1) -> AsyncIterator[None]:
    """One is being answered, and as many wait as may."""
    async with gate.entered():
        tasks = [asyncio.create_task(answer(gate)) for _ in range(waiting)]
        await asyncio.sleep(0)
        yield
    await asyncio.gather(*tasks)


async def refused(gate: Gate) -> int:
    with pytest.raises(ApiError) as caught:
        await answer(gate)
    assert caught.value.status == 429
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


async def test_those_who_are_refused_are_told_different_times() -> None:
    gate = Gate(ApiLimits(at_once=1, waiting=1))
    async with full(gate):
        times = [await refused(gate) for _ in range(100)]
    assert times[0] == BUSY_RETRY_S
    assert times == sorted(times)
    assert len(set(times)) > 25
    assert times[-1] == MAX_RETRY_S


async def test_the_more_wait_the_later_there_is_room() -> None:
    gate = Gate(ApiLimits(at_once=1, waiting=20))
    async with full(gate, 20):
        assert await refused(gate) == BUSY_RETRY_S * 10


async def test_where_answers_are_short_there_is_room_soon() -> None:
    gate = Gate(ApiLimits(at_once=1, waiting=1))
    for _ in range(60):
        await answer(gate)
    async with full(gate):
        assert [await refused(gate) for _ in range(20)] == [BUSY_RETRY_S] * 20


async def test_a_promise_is_kept_for_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(ApiLimits(at_once=1, waiting=1))
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr("diffuse_core.adapters.openai_server.gate._now", lambda: now)
    async with full(gate):
        assert [await refused(gate) for _ in range(10)][-1] > BUSY_RETRY_S
        later = now + MAX_RETRY_S
        monkeypatch.setattr("diffuse_core.adapters.openai_server.gate._now", lambda: later)
        assert await refused(gate) == BUSY_RETRY_S
