"""Links: shared, in order, and never a reason to hang."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.codec import encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import CloseSession, Credit, Ping
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.links import Links
from diffuse_core.services.loopback import QUEUE_FRAMES, loopback
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel
    from diffuse_core.services.links import Link


def node(number: int) -> NodeId:
    return Identity(bytes([number]) * 32).node


class Pool:
    """One node's links, listening, with a list of what came."""

    def __init__(self, network: MemoryNetwork, number: int) -> None:
        self.id = node(number)
        self.network = network
        self.links = Links(network.transport(self.id), self.id)
        self.number = number
        self.came: list[tuple[Link, object]] = []
        self.ended: list[Link] = []
        self.links.handle(CloseSession, self._hear)
        self.links.on_ended(self.ended.append)

    async def start(self) -> str:
        transport = self.network.transport(self.id)
        self.listener = await transport.listen("mem", self.number, self.links.accept)
        return self.listener.address

    async def _hear(self, link: Link, message: object, _body: memoryview) -> None:
        self.came.append((link, message))


@pytest.fixture
async def pools(stack: AsyncExitStack) -> AsyncIterator[tuple[Pool, Pool]]:
    network = MemoryNetwork()
    pair = Pool(network, 1), Pool(network, 2)
    for pool in pair:
        await pool.start()
        stack.push_async_callback(pool.listener.close)
        stack.push_async_callback(pool.links.close)
    return pair


async def test_messages_keep_their_order(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    link = await one.links.to(two.id, ("mem:2",))
    sent = [CloseSession(number.to_bytes(16)) for number in range(200)]
    await asyncio.gather(*(link.send(message) for message in sent))
    await until(lambda: len(two.came) == 200)
    assert [message for _, message in two.came] == sent
    assert one.links.traffic.bytes_out == two.links.traffic.bytes_in > 0


async def test_a_message_without_a_handler_is_passed_over(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    link = await one.links.to(two.id, ("mem:2",))
    await link.send(Ping(1))
    await link.send(CloseSession(b"s" * 16))
    await until(lambda: two.came)
    two.links.unhandle(CloseSession, Credit)
    await link.send(CloseSession(b"s" * 16))
    await link.send(Ping(1))
    await until(lambda: two.links.traffic.bytes_in == one.links.traffic.bytes_out)
    assert len(two.came) == 1


async def test_a_malformed_frame_ends_the_link(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    link = await one.links.to(two.id, ("mem:2",))
    await link._channel.send(b"\x05\x00\x00\x00rubbish")
    await until(lambda: link.closed)
    assert one.links.find(two.id) is None
    assert len(one.ended) == len(two.ended) == 1


async def test_a_handler_that_fails_ends_only_its_link(
    pools: tuple[Pool, Pool], stack: AsyncExitStack
) -> None:
    one, two = pools

    async def fail(_link: Link, _message: object, _body: memoryview) -> None:
        raise RuntimeError("a defect")

    two.links.handle(Credit, fail)
    third = Pool(one.network, 3)
    stack.push_async_callback(third.links.close)
    good, bad = await third.links.dial("mem:2"), await one.links.dial("mem:2")
    await bad.send(Credit(b"s" * 16, 1))
    await until(lambda: bad.closed)
    await good.send(CloseSession(b"s" * 16))
    await until(lambda: two.came)


async def test_the_next_address_is_tried(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    link = await one.links.to(two.id, ("mem:99", "mem:2"))
    assert link.remote == two.id
    assert await one.links.to(two.id, ()) is link


async def test_an_address_of_somebody_else_is_not_taken(
    pools: tuple[Pool, Pool], stack: AsyncExitStack
) -> None:
    one, two = pools
    third = Pool(one.network, 3)
    stack.push_async_callback(third.links.close)
    with pytest.raises(Unreachable, match="answered, not"):
        await third.links.to(one.id, ("mem:2",))
    assert two.links.find(one.id) is None


async def test_a_dial_that_is_given_up_is_told_to_who_waits(pools: tuple[Pool, Pool]) -> None:
    """Whoever waits for a dial was not cancelled: it must not end as if it had been."""
    one, two = pools
    gate = asyncio.Event()

    class Slow:
        async def dial(self, *_: object) -> None:
            gate.set()
            await asyncio.Event().wait()

    one.links._transport = Slow()
    waiting = asyncio.create_task(one.links.to(two.id, ("mem:2",)))
    await gate.wait()
    await one.links.close()
    with pytest.raises(Unreachable, match="given up"):
        await waiting
    with pytest.raises(Unreachable, match="shutting down"):
        await one.links.to(two.id, ("mem:2",))


async def test_a_transport_that_fails_is_told_to_who_waits(pools: tuple[Pool, Pool]) -> None:
    one, two = pools

    class Broken:
        async def dial(self, *_: object) -> None:
            raise ValueError("no such thing as this address")

    one.links._transport = Broken()
    with pytest.raises(Unreachable, match="given up"):
        await one.links.to(two.id, ("?",))


async def test_links_beyond_the_limit_are_turned_away(
    pools: tuple[Pool, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pools
    monkeypatch.setattr("diffuse_core.services.links.MAX_LINKS", 0)
    link = await one.links.dial("mem:2")
    await until(lambda: link.closed)
    with pytest.raises(ChannelClosed):
        await link.send(Ping(1))
    assert two.links.find(one.id) is None


async def test_links_of_its_own_and_relayed_ones_take_no_place_of_direct_ones(
    pools: tuple[Pool, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pools
    monkeypatch.setattr("diffuse_core.services.links.MAX_LINKS", 1)
    await two.links.dial("mem:1")
    relayed, _ = loopback(node(3))
    relayed.relayed_through = node(4)
    serving = asyncio.create_task(two.links.accept(relayed))
    await until(lambda: node(3) in two.links.linked())
    link, late = [await one.links.dial("mem:2") for _ in range(2)]
    await until(lambda: late.closed)
    await link.send(CloseSession(b"s" * 16))
    await until(lambda: two.came)
    await relayed.close()
    await serving


async def test_a_callback_can_be_taken_back(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    one.links.off_ended(one.ended.append)
    link = await one.links.to(two.id, ("mem:2",))
    await link.close()
    await until(lambda: two.ended)
    assert one.links.find(two.id) is None
    assert not one.ended


async def test_loopback_waits_while_its_queue_is_full() -> None:
    near, far = loopback(node(1))
    for number in range(QUEUE_FRAMES):
        await near.send(number.to_bytes(2))
    blocked = asyncio.create_task(near.send(b"last"))
    await asyncio.sleep(0)
    assert not blocked.done()
    assert await far.receive() == bytes(2)
    await blocked
    got = [await far.receive() for _ in range(QUEUE_FRAMES)]
    assert got[-1] == b"last"


async def test_loopback_ends_for_whoever_waits() -> None:
    near, far = loopback(node(1))
    for number in range(QUEUE_FRAMES):
        await near.send(number.to_bytes(2))
    sending = [asyncio.create_task(near.send(b"more")) for _ in range(3)]
    receiving = asyncio.create_task(near.receive())
    await asyncio.sleep(0)
    await far.close()
    async with asyncio.timeout(10):
        ends = await asyncio.gather(*sending, receiving, return_exceptions=True)
    assert all(isinstance(end, ChannelClosed) for end in ends), ends
    with pytest.raises(ChannelClosed):
        await far.receive()
    await near.close()


async def test_a_stranger_that_comes_again_and_again_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    strict = Links(network.transport(node(1)), node(1), frozenset({node(9)}))
    listener = await network.transport(node(1)).listen("mem", 1, strict.accept)
    stranger = Links(network.transport(node(2)), node(2))
    with caplog.at_level("DEBUG", logger="diffuse_core.services.links"):
        for _ in range(3):
            link = await stranger.dial("mem:1", node(1))
            await link.ended.wait()
    told = [one.levelname for one in caplog.records if "allow list" in one.getMessage()]
    assert told == ["INFO", "DEBUG", "DEBUG"]
    await stranger.close()
    await listener.close()


class Taker:
    """Takes over the channel of whoever sends a Credit, and keeps it until told."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.taken: list[tuple[Link, Channel]] = []
        self.go = asyncio.Event()
        pool.links.handle(Credit, self._take)

    async def _take(self, link: Link, _message: object, _body: memoryview) -> None:
        self.taken.append((link, await self.pool.links.surrender(link)))
        await self.go.wait()


async def test_a_surrendered_channel_is_its_takers_until_that_returns(
    pools: tuple[Pool, Pool],
) -> None:
    one, two = pools
    taker = Taker(two)
    link = await one.links.to(two.id, ("mem:2",))
    await link.send(Credit(b"s" * 16, 1))
    await until(lambda: taker.taken)
    there, channel = taker.taken[0]
    assert two.links.find(one.id) is None
    assert not two.links.linked()
    assert two.ended == [there]
    assert there.closed
    assert there.ended.is_set()
    with pytest.raises(ChannelClosed):
        await there.send(Ping(1))
    with pytest.raises(ChannelClosed):
        await two.links.surrender(there)
    await there.close()
    # Frames of any content go both ways, and no handler sees them.
    await link._channel.send(b"anything")
    assert await channel.receive() == b"anything"
    await link._channel.send(b"left unread")
    await channel.send(encode(CloseSession(b"s" * 16)))
    await until(lambda: one.came)
    taker.go.set()
    await until(lambda: link.closed)
    assert two.ended == [there]
    assert not two.links._surrendered
    assert not two.came


async def test_a_channel_is_surrendered_when_the_send_under_way_is_done(
    pools: tuple[Pool, Pool],
) -> None:
    one, two = pools
    taker = Taker(two)
    link = await one.links.to(two.id, ("mem:2",))
    await until(lambda: two.links.find(one.id))
    far = two.links.find(one.id)
    assert far is not None
    stuck = asyncio.Event()
    real = far._channel.send
    log: list[str] = []

    async def slow(frame: bytes) -> None:
        await stuck.wait()
        await real(frame)
        log.append("sent")

    far._channel.send = slow  # type: ignore[method-assign]
    first = asyncio.create_task(far.send(CloseSession(b"1" * 16)))
    second = asyncio.create_task(far.send(CloseSession(b"2" * 16)))
    await asyncio.sleep(0)
    await link.send(Credit(b"s" * 16, 1))
    await until(lambda: far.closed)
    assert not taker.taken
    stuck.set()
    await until(lambda: taker.taken)
    assert log == ["sent"]
    await first
    with pytest.raises(ChannelClosed):
        await second
    taker.go.set()


async def test_closing_the_pool_ends_surrendered_channels(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    taker = Taker(two)
    link = await one.links.to(two.id, ("mem:2",))
    await link.send(Credit(b"s" * 16, 1))
    await until(lambda: taker.taken)
    await two.links.close()
    await until(lambda: link.closed)
    with pytest.raises(ChannelClosed):
        await taker.taken[0][1].send(b"x")
    taker.go.set()
    await until(lambda: not two.links._surrendered)


async def test_the_end_of_a_pool_does_not_wait_for_who_fell_silent(
    pools: tuple[Pool, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pools
    link = await one.links.to(two.id, ("mem:2",))
    hang_up, calls = link._channel.close, []

    async def unanswered() -> None:
        calls.append(link)
        if len(calls) == 1:
            await asyncio.Event().wait()
        await hang_up()

    monkeypatch.setattr(link._channel, "close", unanswered)
    link.fell_silent()
    async with asyncio.timeout(10):
        await one.links.close()
    assert calls


async def test_who_is_heard_again_is_silent_no_more(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    await one.links.to(two.id, ("mem:2",))
    await until(lambda: two.links.linked())
    (link,) = two.links.linked()[one.id]
    assert not link.silent
    link.fell_silent()
    assert link.silent
    await one.links.linked()[two.id][0].send(CloseSession(b"s" * 16))
    await until(lambda: two.came)
    assert not link.silent
