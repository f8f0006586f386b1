"""The addresses of one node are dialled in a race: the first that answers wins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.errors import Unreachable
from diffuse_core.services import links, race, ways
from diffuse_core.services.links import Links
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel


def node(number: int) -> NodeId:
    return Identity(bytes([number]) * 32).node


RELAYED = str(RelayedAddress(node(9), "mem:9"))


class Roads:
    """A transport: `silent` addresses answer when they are let go, `bad` ones refuse."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._transport = network.transport(node(1))
        self.begun: list[str] = []
        self.patience: list[float] = []
        self.given_up: list[str] = []
        self.channels: list[Channel] = []
        self.answer = asyncio.Event()
        self.leads_to = "mem:2"

    async def dial(self, address: str, expected: NodeId, seconds: float) -> Channel:
        self.begun.append(address)
        self.patience.append(seconds)
        if address.startswith("bad"):
            raise Unreachable(f"{address} refused")
        if address.startswith("silent"):
            try:
                async with asyncio.timeout(seconds):
                    await self.answer.wait()
            except TimeoutError as error:
                raise Unreachable(f"{address} is silent") from error
            except asyncio.CancelledError:
                self.given_up.append(address)
                raise
        channel = await self._transport.dial(self.leads_to, expected, seconds)
        self.channels.append(channel)
        return channel


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
def roads(network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch) -> Roads:
    monkeypatch.setattr(race, "STAGGER_S", 0.02)
    return Roads(network)


@pytest.fixture
async def ours(roads: Roads, stack: AsyncExitStack) -> Links:
    made = Links(roads, node(1))
    stack.push_async_callback(made.close)
    return made


@pytest.fixture
async def theirs(network: MemoryNetwork, stack: AsyncExitStack) -> AsyncIterator[Links]:
    made = Links(network.transport(node(2)), node(2))
    stack.push_async_callback(made.close)
    listener = await network.transport(node(2)).listen("mem", 2, made.accept)
    yield made
    await listener.close()


@pytest.mark.usefixtures("theirs")
async def test_an_address_that_swallows_everything_costs_a_moment(
    ours: Links, roads: Roads
) -> None:
    async with asyncio.timeout(10):
        link = await ours.to(node(2), ("silent:1", "silent:2", "good:3", "good:4"))
    assert link.remote == node(2)
    assert roads.begun == ["silent:1", "silent:2", "good:3"]
    await until(lambda: sorted(roads.given_up) == ["silent:1", "silent:2"])
    assert ours.linked() == {node(2): [link]}


@pytest.mark.usefixtures("theirs")
async def test_a_circuit_is_soon_tried_and_gets_more_time_than_a_neighbour(
    ours: Links, roads: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "STAGGER_S", 60.0)
    monkeypatch.setattr(ways, "LAN_STAGGER_S", 0.01)
    monkeypatch.setattr(ways, "CIRCUIT_STAGGER_S", 60.0)
    other = str(RelayedAddress(node(8), "mem:8"))
    roads.leads_to = "mem:2"
    link = await ours.to(node(2), (other, "silent:1", RELAYED, "silent:2"))
    assert link.remote == node(2)
    assert roads.begun == ["silent:1", "silent:2", other]


@pytest.mark.usefixtures("theirs")
async def test_a_refusal_begins_the_next_at_once(
    ours: Links, roads: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "STAGGER_S", 60.0)
    await ours.to(node(2), ("bad:1", "bad:2", "good:3"))
    assert roads.begun == ["bad:1", "bad:2", "good:3"]


@pytest.mark.usefixtures("theirs")
async def test_relayed_addresses_come_last(ours: Links, roads: Roads) -> None:
    await ours.to(node(2), (RELAYED, "silent:1", "bad:2"))
    assert roads.begun == ["silent:1", "bad:2", RELAYED]


async def test_what_answers_too_late_is_closed_and_no_link(
    ours: Links, theirs: Links, roads: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    dials = asyncio.create_task(ours.to(node(2), ("silent:1", "silent:2", "silent:3")))
    await until(lambda: len(roads.begun) == 3)
    met: list[object] = []
    ours.on_met(met.append)
    roads.answer.set()
    link = await dials
    await until(lambda: len(theirs.linked().get(node(1), ())) == 1)
    assert met == [link]
    assert ours.linked() == {node(2): [link]}
    assert not link.closed


async def test_a_link_from_the_other_side_ends_the_race(
    ours: Links, theirs: Links, roads: Roads, network: MemoryNetwork, stack: AsyncExitStack
) -> None:
    listener = await network.transport(node(1)).listen("mem", 1, ours.accept)
    stack.push_async_callback(listener.close)
    dials = asyncio.create_task(ours.to(node(2), ("silent:1", "silent:2")))
    await until(lambda: len(roads.begun) == 2)
    await theirs.to(node(1), ("mem:1",))
    link = await dials
    assert not link.dialled
    await until(lambda: sorted(roads.given_up) == ["silent:1", "silent:2"])
    assert ours.linked() == {node(2): [link]}


async def test_who_answers_as_somebody_else_is_named(ours: Links, theirs: Links) -> None:
    with pytest.raises(Unreachable, match=r"none of its 2 addresses: .*not .*; bad:1 refused"):
        await ours.to(node(3), ("good:1", "bad:1"))


async def test_silence_is_the_cause_only_where_all_were_silent(
    ours: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "DIAL_TIMEOUT_S", 0.05)
    for addresses in (("silent:1",), ("silent:1", "silent:2")):
        with pytest.raises(Unreachable, match="silent:1 is silent") as got:
            await ours.to(node(2), addresses)
        assert isinstance(got.value.__cause__, TimeoutError)
    for addresses in (("silent:1", "bad:2"), ("bad:1", "silent:2")):
        with pytest.raises(Unreachable, match="is silent") as got:
            await ours.to(node(2), addresses)
        assert not isinstance(got.value.__cause__, TimeoutError)
    with pytest.raises(Unreachable, match="advertises no address"):
        await ours.to(node(2), ())


async def test_no_dial_gets_more_time_than_is_left_for_all(
    ours: Links, roads: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "DIAL_TIMEOUT_S", 0.15)
    monkeypatch.setattr(links, "DIAL_ALL_S", 0.16)
    monkeypatch.setattr(race, "STAGGER_S", 0.1)
    with pytest.raises(Unreachable):
        await ours.to(node(2), ("silent:1", "silent:2"))
    first, second = roads.patience
    assert first == 0.15
    assert second < 0.07


async def test_two_that_dial_each_other_at_once_both_keep_what_they_have(
    network: MemoryNetwork, stack: AsyncExitStack
) -> None:
    """Neither closes what the other one uses already."""
    made = []
    for number in (1, 2):
        links = Links(network.transport(node(number)), node(number))
        stack.push_async_callback(links.close)
        listener = await network.transport(node(number)).listen("mem", number, links.accept)
        stack.push_async_callback(listener.close)
        made.append(links)
    one, two = made
    got = await asyncio.gather(one.to(node(2), ("mem:2",)), two.to(node(1), ("mem:1",)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(link.closed for link in got)
