"""A sentinel that floods a node with offers costs it little, and is given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import offers
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    CircuitReady,
    DeclineCircuit,
    JoinCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.domain.reservations import Candidate
from diffuse_core.services import reservations
from tests.services.hidden import Town, ask, tell
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel
    from tests.services.hidden import Hidden, Liar

SOURCE = Identity(b"x" * 32).node


@pytest.fixture
def town(stack: AsyncExitStack) -> Town:
    return Town(stack)


class Flood:
    """A sentinel that reserves, and offers circuits that come to nothing."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.joins = self.declines = self.released = 0
        self.link: Channel | None = None

    async def __call__(self, channel: Channel) -> None:
        while True:
            message = await ask(channel)
            self.declines += isinstance(message, DeclineCircuit)
            self.released += isinstance(message, Release)
            if isinstance(message, Reserve):
                self.link = channel
                await tell(channel, Reserved(120))
            elif isinstance(message, JoinCircuit):
                self.joins += 1
                await self.join(channel)

    async def join(self, channel: Channel) -> None:
        if self.how == "refuses":
            await tell(channel, RelayRefused("gone"))
        elif self.how == "lies":
            await tell(channel, CircuitReady())
            await channel.send(b"\x01xx")

    async def offer(self, first: int, count: int) -> None:
        assert self.link is not None
        numbers = range(first, first + count)
        told = (CircuitOffered(number.to_bytes(16), SOURCE) for number in numbers)
        await tell(self.link, *told)


def held(node: Hidden) -> list[NodeId]:
    return [way.sentinel for way in node.reservations.held()]


async def reserved(town: Town, flood: Flood) -> tuple[Liar, Hidden]:
    liar, node = await town.liar(flood), town.hidden()
    node.known = [liar.candidate()]
    node.reservations.start()
    await until(lambda: held(node) == [liar.id])
    return liar, node


@pytest.mark.parametrize("how", ["refuses", "lies", "is silent"])
async def test_who_offers_circuits_that_lead_nowhere_is_given_up(
    town: Town, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(reservations, "LOOK_S", 0.01)
    monkeypatch.setattr(reservations, "JOIN_S", 0.1)
    for most in ("MAX_JOINS", "MAX_RELAYED"):
        monkeypatch.setattr(reservations, most, 1000)
    flood = Flood(how)
    liar, node = await reserved(town, flood)
    await flood.offer(0, 300)
    await until(lambda: not held(node) and flood.released)
    assert flood.joins <= offers.JOIN_BURST + 8
    assert flood.declines <= 2 * offers.JOIN_BURST + 8
    other = await town.sentinel()
    node.known = [liar.candidate(), Candidate(other.id, (other.address,))]
    await until(lambda: held(node) == [other.id])
    await flood.offer(300, 300)
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert held(node) == [other.id]
    assert flood.joins <= offers.JOIN_BURST + 8


async def test_circuits_that_are_pushed_out_count_as_well(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "PATIENCE_S", 0.0)
    monkeypatch.setattr(reservations, "MAX_JOINS", 4)
    flood = Flood("is silent")
    _, node = await reserved(town, flood)
    await flood.offer(0, offers.JOIN_BURST)
    await until(lambda: not held(node) and flood.released)


async def test_as_many_may_come_at_once_as_a_sentinel_offers(town: Town) -> None:
    sentinel = await town.sentinel()
    target = await town.reserved()
    sources = [town.hidden() for _ in range(offers.JOIN_BURST)]
    links = await asyncio.gather(*(source.to(target) for source in sources))
    assert {link.relayed_through for link in links} == {sentinel.id}
    assert held(target) == [sentinel.id]
