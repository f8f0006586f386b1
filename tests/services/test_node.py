"""Nodes over the in-memory transport: they find each other, see changes, and say goodbye."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import CloseSession
from diffuse_core.domain.records import Load
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.node import Node
from diffuse_core.services.observer import Observer
from tests.services.waiting import until


class Net:
    """Nodes of one memory network, stopped at the end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.memory = MemoryNetwork()
        self.stack = stack

    async def node(self, number: int, *bootstrap: str) -> tuple[Node, str]:
        identity = Identity(bytes([number]) * 32)
        node = Node(
            identity,
            self.memory.transport(identity.node),
            SystemClock(),
            random.Random(number),
            role="host",
            version="test",
        )
        address = await node.start("mem", number, bootstrap, ("mem",))
        self.stack.push_async_callback(node.stop)
        return node, address


async def test_nodes_find_each_other_through_one_they_know() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        first, known = await net.node(1)
        second, _ = await net.node(2, known)
        third, _ = await net.node(3, known)
        everyone = {first.id, second.id, third.id}
        for node in (first, second, third):
            await until(lambda node=node: {m.record.node for m in node.members()} == everyone)
            assert node.view().me == node.id.hex()
        assert third.addresses(second.id) == ("mem:2",)


async def test_news_of_a_node_reach_the_others() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        first, known = await net.node(1)
        second, _ = await net.node(2, known)
        await second.joined.wait()
        second.report(Load(sessions=3))
        await until(lambda: any(m.record.load.sessions == 3 for m in first.members()))


async def test_who_leaves_is_gone_at_once() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        first, known = await net.node(1)
        second, _ = await net.node(2, known)
        await until(lambda: len(first.members()) == 2)
        await second.stop()
        await until(lambda: len(first.members()) == 1)


async def test_bootstrap_is_tried_until_it_answers() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        early, _ = await net.node(2, "mem:1")
        await until(lambda: any("mem:1" in event.text for event in early.events))
        late, _ = await net.node(1)
        await until(lambda: len(late.members()) == 2)


async def test_an_observer_sees_all_and_leaves_no_trace() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        first, known = await net.node(1)
        await net.node(2, known)
        await until(lambda: len(first.members()) == 2)
        observer = Observer(net.memory.transport(Identity(b"o" * 32).node), SystemClock())
        stack.push_async_callback(observer.close)
        await observer.look(["mem:77", known])
        assert len(observer.view().nodes) == 2
        assert observer.view().me is None
        assert len(first.members()) == 2


async def test_an_observer_tells_why_nobody_answers() -> None:
    observer = Observer(MemoryNetwork().transport(Identity(b"o" * 32).node), SystemClock())
    with pytest.raises(Unreachable, match=r"mem:77.*--bootstrap"):
        await observer.look(["mem:77"])
    await observer.close()


async def test_a_node_talks_to_itself_without_a_socket() -> None:
    async with AsyncExitStack() as stack:
        node, _ = await Net(stack).node(1)
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def hear(_link: object, message: CloseSession, _body: memoryview) -> None:
            heard.put_nowait(message.session)

        node.links.handle(CloseSession, hear)
        link = await node.links.to(node.id, ())
        await link.send(CloseSession(b"s" * 16))
        assert await heard.get() == b"s" * 16
        assert await node.links.to(node.id, ()) is link
        await link.close()
        await until(lambda: node.links.find(node.id) is None)
        with pytest.raises(ChannelClosed):
            await link.send(CloseSession(b"s" * 16))


async def test_one_dial_serves_all_who_want_the_link() -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        first, _ = await net.node(1)
        second, address = await net.node(2)
        links = await asyncio.gather(*(first.links.to(second.id, (address,)) for _ in range(5)))
        assert len(set(map(id, links))) == 1
        with pytest.raises(Unreachable, match="no address"):
            await first.links.to(Identity(b"x" * 32).node, ())
