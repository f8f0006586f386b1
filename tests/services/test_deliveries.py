"""Gossip reaches who can be reached, however many made-up nodes lead nowhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import Ack, Ping, Push
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services import deliveries
from diffuse_core.services.deliveries import DIALS_FOR_THE_MET, MAX_DIALS, Deliveries
from diffuse_core.services.links import Link, Links
from diffuse_core.services.tasks import WARN_S, TaskOwner
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel

STRANGERS = 500


def node(number: int) -> NodeId:
    return Identity(number.to_bytes(32)).node


class Roads:
    """A transport: `silent` addresses answer nobody, others are those of a memory network."""

    def __init__(self, network: MemoryNetwork, own: NodeId) -> None:
        self._transport = network.transport(own)
        self.dialled: list[str] = []
        self.underway = 0
        self.give_up = asyncio.Event()

    async def dial(self, address: str, expected: NodeId, seconds: float) -> Channel:
        self.dialled.append(address)
        if not address.startswith("silent"):
            return await self._transport.dial(address, expected, seconds)
        self.underway += 1
        try:
            await self.give_up.wait()
        finally:
            self.underway -= 1
        raise Unreachable("no answer") from TimeoutError()


class Hands:
    """Time that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Sender:
    """Node 0 of the memory network, which knows where everybody says they are."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.roads = Roads(network, node(0))
        self.links = Links(self.roads, node(0))
        self.clock = Hands()
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.suspected: list[NodeId] = []
        self.suspect = self.suspected.append
        self.post = Deliveries(self)

    def addresses(self, of: NodeId) -> tuple[str, ...]:
        return self.known.get(of, ())

    def flood(self) -> None:
        """Messages to many made-up nodes whose address is silent."""
        for number in range(1000, 1000 + STRANGERS):
            self.known[node(number)] = (f"silent:{number}",)
            self.post.send(node(number), Ack(1))

    async def settled(self) -> None:
        await until(lambda: not self.post._lines)


class Friend:
    """A node that is there, and hears."""

    def __init__(self, network: MemoryNetwork, number: int) -> None:
        self.id, self.number = node(number), number
        self.address = f"mem:{number}"
        self.transport = network.transport(self.id)
        self.links = Links(self.transport, self.id)
        self.heard: list[int] = []
        self.links.handle(Ack, self._hear)

    async def _hear(self, _link: Link, message: Ack, _body: memoryview) -> None:
        self.heard.append(message.nonce)

    async def listen(self) -> None:
        self.listener = await self.transport.listen("mem", self.number, self.links.accept)

    async def close(self) -> None:
        await self.listener.close()
        await self.links.close()


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    made = Sender(MemoryNetwork())
    yield made
    await made.post.close()
    await made.links.close()


@pytest.fixture
async def friend(sender: Sender) -> AsyncIterator[Friend]:
    made = Friend(sender.network, 1)
    await made.listen()
    sender.known[made.id] = (made.address,)
    yield made
    await made.close()


async def test_open_links_never_wait_for_dials(sender: Sender, friend: Friend) -> None:
    await sender.links.dial(friend.address, friend.id)
    sender.flood()
    for number in range(100):
        sender.post.send(friend.id, Ack(number))
    await until(lambda: len(friend.heard) == 100)
    assert friend.heard == list(range(100))
    assert sender.roads.underway == MAX_DIALS - DIALS_FOR_THE_MET


async def test_who_was_met_is_dialled_among_any_number_of_strangers(
    sender: Sender, friend: Friend
) -> None:
    link = await sender.links.dial(friend.address, friend.id)
    await link.close()
    await until(lambda: sender.links.find(friend.id) is None)
    sender.flood()
    sender.post.send(friend.id, Ack(7))
    await until(lambda: friend.heard == [7])


async def test_what_is_dropped_is_told_once_a_minute_with_how_much(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    sender.flood()
    sender.clock.now += WARN_S - 1
    sender.flood()
    assert len(caplog.records) == 1
    sender.clock.now += 2
    sender.post.send(node(9), Ack(1))
    assert len(caplog.records) == 2
    dropped = 2 * (STRANGERS - MAX_DIALS + DIALS_FOR_THE_MET)
    assert f"({dropped} since" in caplog.records[1].getMessage()


async def test_one_dial_has_a_line_behind_it_that_is_bounded(
    sender: Sender, friend: Friend
) -> None:
    sender.known[friend.id] = ("silent:1", friend.address)
    for number in range(1000):
        sender.post.send(friend.id, Ack(number))
    await until(lambda: sender.roads.underway == 1)
    sender.roads.give_up.set()
    await until(lambda: friend.heard)
    await sender.settled()
    assert friend.heard == list(range(deliveries.MAX_WAITING_FOR_A_DIAL))


async def test_a_link_that_opens_from_there_ends_the_wait(sender: Sender, friend: Friend) -> None:
    """Whatever the addresses are worth: a node with an open link is spoken to over that one."""
    listener = await sender.network.transport(node(0)).listen("mem", 50, sender.links.accept)
    sender.known[friend.id] = ("silent:1",)
    sender.post.send(friend.id, Ack(1))
    await until(lambda: sender.roads.underway == 1)
    await friend.links.dial("mem:50", node(0))
    await until(lambda: friend.heard == [1])
    sender.post.send(friend.id, Ack(2))
    await until(lambda: friend.heard == [1, 2])
    sender.roads.give_up.set()
    await sender.settled()
    assert sender.suspected == []
    await listener.close()


async def test_who_refuses_is_suspected_once_a_probe(sender: Sender) -> None:
    """Undialable addresses and other messages than pings make no more of it."""
    sender.known[node(5)] = ("[/red]:2", "mem:404")
    for _ in range(100):
        sender.post.send(node(5), Push(()))
        await sender.settled()
        sender.post.send(node(5), Ping(1))
        await sender.settled()
    assert sender.suspected == [node(5)]
    assert len(sender.roads.dialled) == 2
    for strike in (2, 3):
        sender.clock.now += 0.5
        sender.post.send(node(5), Ping(1))
        await sender.settled()
        assert len(sender.suspected) == strike
    sender.clock.now += 0.5
    sender.post.send(node(5), Push(()))
    await sender.settled()
    assert len(sender.suspected) == 3


async def test_silence_is_no_evidence_and_not_tried_again_at_once(
    sender: Sender, friend: Friend
) -> None:
    sender.known[friend.id] = ("silent:1",)
    sender.roads.give_up.set()
    sender.post.send(friend.id, Ping(1))
    await sender.settled()
    sender.post.send(friend.id, Ping(2))
    await sender.settled()
    assert (sender.suspected, sender.roads.dialled) == ([], ["silent:1"])
    sender.known[friend.id] = (friend.address,)
    sender.clock.now += deliveries.SILENT_LONGEST_S
    sender.post.send(friend.id, Ack(3))
    await until(lambda: friend.heard == [3])


async def test_a_link_makes_failures_forgotten(sender: Sender, friend: Friend) -> None:
    sender.known[friend.id] = ("mem:404",)
    sender.post.send(friend.id, Ack(1))
    await sender.settled()
    link = await sender.links.dial(friend.address, friend.id)
    await link.close()
    sender.known[friend.id] = (friend.address,)
    sender.post.send(friend.id, Ack(2))
    await until(lambda: friend.heard == [2])


async def test_what_waits_when_a_link_breaks_goes_over_the_next(
    sender: Sender, friend: Friend, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await sender.links.dial(friend.address, friend.id)
    for number in range(3):
        sender.post.send(friend.id, Ack(number))

    async def breaks(_message: object) -> None:
        link.closed = True
        raise ChannelClosed("it broke")

    monkeypatch.setattr(link, "send", breaks)
    await until(lambda: friend.heard == [1, 2])


async def test_nothing_is_lost_when_one_of_two_links_is_closed(
    sender: Sender, friend: Friend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sender.links.dial(friend.address, friend.id)
    link = await sender.links.dial(friend.address, friend.id)

    async def breaks(_message: object) -> None:
        link.closed = True
        raise ChannelClosed("it was one too many")

    monkeypatch.setattr(link, "send", breaks)
    for number in range(3):
        sender.post.send(friend.id, Ack(number))
    await until(lambda: friend.heard == [0, 1, 2])


async def test_what_is_remembered_is_bounded(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_REMEMBERED", 5)
    for number in range(20):
        sender.post.send(node(number + 1), Ack(1))
        await sender.settled()
    assert len(sender.post._failures) == 5


async def test_tasks_beyond_a_limit_are_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = TaskOwner("some", limit=0)
    for _ in range(100):
        assert owner.spawn(asyncio.sleep(0), "work") is None
    assert [record.getMessage() for record in caplog.records] == [
        "some: at its limit of tasks; dropped work (1 since this was told last)"
    ]
