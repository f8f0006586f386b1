"""Several places, of which one is enough."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import Identity
from diffuse_core.errors import Unreachable
from diffuse_core.services import race
from diffuse_core.services.dialling import Place, dial_any
from diffuse_core.services.race import MAX_DIALS
from tests.services.waiting import until

if TYPE_CHECKING:
    import pytest

NODE = Identity(b"n" * 32).node


class Link:
    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Dials:
    """Stands for Links: addresses answer, fail or stay silent until they are let go."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, object]] = []
        self.cancelled: list[str] = []
        self.made: list[Link] = []
        self.gate = asyncio.Event()

    async def dial(self, address: str, expected: object) -> Link:
        self.begun.append((address, expected))
        if address.startswith("bad"):
            raise Unreachable(f"{address} is bad")
        if address.startswith("silent"):
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(address)
                raise
        self.made.append(Link(address))
        return self.made[-1]


async def first(dials: Dials, *addresses: str) -> tuple[Link | None, list[str]]:
    problems: list[str] = []
    async with aclosing(dial_any(dials, map(Place, addresses), problems)) as links:
        async for link in links:
            return link, problems
    return None, problems


async def test_the_first_that_answers_wins_and_no_other_is_dialled() -> None:
    dials = Dials()
    link, problems = await first(dials, "good:1", "good:2")
    assert link.address == "good:1"
    assert dials.begun == [("good:1", None)]
    assert problems == []


async def test_a_failure_begins_the_next_at_once_and_is_told() -> None:
    dials = Dials()
    link, problems = await first(dials, "bad:1", "bad:2", "good:3")
    assert link.address == "good:3"
    assert problems == ["bad:1 is bad", "bad:2 is bad"]


async def test_all_failures_are_told() -> None:
    assert await first(Dials(), "bad:1", "bad:2") == (None, ["bad:1 is bad", "bad:2 is bad"])
    assert await first(Dials()) == (None, [])


async def test_a_silent_place_does_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "STAGGER_S", 0.01)
    dials = Dials()
    link, _ = await first(dials, "silent:1", "silent:2", "good:3")
    assert link.address == "good:3"
    assert sorted(dials.cancelled) == ["silent:1", "silent:2"]


async def test_few_are_dialled_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "STAGGER_S", 0.001)
    dials = Dials()
    places = [f"silent:{number}" for number in range(20)]
    task = asyncio.create_task(first(dials, *places))
    await until(lambda: len(dials.begun) == MAX_DIALS)
    for _ in range(5):
        await asyncio.sleep(race.STAGGER_S)
    assert len(dials.begun) == MAX_DIALS
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(dials.cancelled) == MAX_DIALS


async def test_links_that_came_too_late_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "STAGGER_S", 0.001)
    dials = Dials()
    problems: list[str] = []
    places = [Place("silent:1", NODE), Place("silent:2")]
    links = dial_any(dials, places, problems)
    task = asyncio.create_task(anext(links))
    await until(lambda: len(dials.begun) == 2)
    dials.gate.set()
    won = await task
    await links.aclose()
    assert dials.begun[0] == ("silent:1", NODE)
    assert [link.closed for link in dials.made if link is not won] == [True]
    assert not won.closed
