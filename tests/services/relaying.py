"""A sentinel that relays, and nodes around it that speak to it by hand."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    CircuitReady,
    JoinCircuit,
    OpenCircuit,
    RelayMessage,
    RelayRefused,
    Reserve,
    Reserved,
)
from diffuse_core.errors import ChannelClosed
from diffuse_core.services.node import Node
from diffuse_core.services.relay import RelayService
from tests.services.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.domain.records import Role
    from diffuse_core.ports import Channel, Transport


class Relaying:
    """A sentinel with a relay, and what a test dials to it. Everything ends with `stack`."""

    def __init__(
        self, stack: AsyncExitStack, limits: RelayLimits | None = None, *, sockets: bool = False
    ) -> None:
        self.stack = stack
        self.sockets = sockets
        self.place = "127.0.0.1" if sockets else "mem"
        self.memory = MemoryNetwork()
        self.limits = limits or RelayLimits()
        self.address = ""
        self.identity = Identity(bytes([250]) * 32)
        self.sentinel = self._node(self.identity, "sentinel")
        self.relay = RelayService(self.sentinel, random.Random(2), self.limits)

    def transport(self, identity: Identity) -> Transport:
        if self.sockets:
            return WebSocketTransport(identity, "test")
        return self.memory.transport(identity.node)

    async def start(self) -> Relaying:
        self.stack.push_async_callback(self.sentinel.stop)
        self.stack.push_async_callback(self.relay.close)
        self.address = await self.sentinel.start(self.place, 0, (), (self.place,))
        self.relay.start()
        return self

    async def node(self, number: int, role: Role) -> Node:
        """A node of the network, started, that relays nothing."""
        node = self._node(Identity(bytes([number]) * 32), role)
        self.stack.push_async_callback(node.stop)
        await node.start(self.place, 0, (self.address,), (self.place,))
        return node

    def _node(self, identity: Identity, role: Role) -> Node:
        transport, rng = self.transport(identity), random.Random(identity.node)
        return Node(identity, transport, SystemClock(), rng, role=role, version="test")

    def end(self, number: int) -> End:
        return End(self, number)

    async def reserved(self, number: int) -> End:
        """A node with a reservation."""
        end = self.end(number)
        await end.reserve()
        return end

    async def circuit(self, source: End, target: End) -> tuple[Channel, Channel]:
        """Both halves of a circuit, ready."""
        near = await source.open(target)
        far = await target.join(await target.offered())
        assert isinstance(await heard(far), CircuitReady)
        assert isinstance(await heard(near), CircuitReady)
        return near, far

    async def idle(self) -> None:
        """Wait until nothing of any circuit is left."""
        await until(lambda: self.relay.figures().circuits == 0)
        await until(lambda: not self.sentinel.links._surrendered)
        await until(lambda: not relay_tasks())


class End:
    """A node that speaks to the sentinel by hand."""

    def __init__(self, relaying: Relaying, number: int) -> None:
        self.identity = Identity(bytes([number]) * 32)
        self.id = self.identity.node
        self.relaying = relaying
        self.transport = relaying.transport(self.identity)
        self.control: Channel | None = None

    async def dial(self) -> Channel:
        relaying = self.relaying
        channel = await self.transport.dial(relaying.address, relaying.sentinel.id, 5.0)
        relaying.stack.callback(break_off, channel)
        return channel

    async def ask(self, message: AnyMessage) -> Channel:
        """A channel of its own on which `message` was said first."""
        channel = await self.dial()
        await channel.send(encode(message))
        return channel

    async def reserve(self) -> RelayMessage:
        self.control = self.control or await self.dial()
        await self.control.send(encode(Reserve()))
        answer = await heard(self.control)
        assert isinstance(answer, Reserved | RelayRefused)
        return answer

    async def offered(self) -> CircuitOffered:
        offer = await heard(self.control)
        assert isinstance(offer, CircuitOffered), offer
        return offer

    async def open(self, target: End) -> Channel:
        return await self.ask(OpenCircuit(target.id))

    async def join(self, offer: CircuitOffered) -> Channel:
        return await self.ask(JoinCircuit(offer.circuit))


async def heard(channel: Channel) -> RelayMessage:
    """The next message about relaying; gossip is passed over."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message, _ = decode(await channel.receive())
            if isinstance(message, RelayMessage):
                return message


async def refusal(channel: Channel) -> str:
    """The problem that the sentinel tells before it closes the channel."""
    answer = await heard(channel)
    assert isinstance(answer, RelayRefused), answer
    assert await ended(channel)
    return answer.problem


async def ended(channel: Channel) -> bool:
    """Wait until the channel ends; frames on the way are passed over."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            while True:
                await channel.receive()
        except ChannelClosed:
            return True


def break_off(channel: Channel) -> None:
    """End it without a farewell."""
    if hasattr(channel, "break_off"):
        channel.break_off()
    else:
        channel._carrier._connection.transport.abort()


def relay_tasks() -> list[asyncio.Task[object]]:
    """What runs for circuits."""
    tasks = asyncio.all_tasks()
    return [task for task in tasks if task.get_name().startswith("relay ")]
