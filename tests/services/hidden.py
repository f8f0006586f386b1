"""Nodes that nobody can dial, sentinels that relay for them, and sentinels that lie."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import BundlePart
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.reservations import Candidate
from diffuse_core.errors import ChannelClosed
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.links import Links
from diffuse_core.services.node import Node
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.ports import Channel, Clock, Transport
    from diffuse_core.services.links import Link

ROOMY = RelayLimits(circuits_per_source=64, offers_per_target=64, opens=64)
DIGEST = "0" * 64


class Town:
    """What the nodes of a test have in common. Everything ends with `stack`."""

    def __init__(self, stack: AsyncExitStack, *, sockets: bool = False) -> None:
        self.stack = stack
        self.sockets = sockets
        self.memory = MemoryNetwork()
        self.place = "127.0.0.1" if sockets else "mem"
        self.seeds = iter(range(1, 256))
        self.sentinels: list[Sentinel] = []

    def identity(self) -> Identity:
        return Identity(bytes([next(self.seeds)]) * 32)

    def transport(self, identity: Identity) -> Transport:
        if self.sockets:
            return WebSocketTransport(identity, "test")
        return self.memory.transport(identity.node)

    async def sentinel(self, limits: RelayLimits = ROOMY) -> Sentinel:
        made = Sentinel(self, limits)
        await made.start()
        self.sentinels.append(made)
        return made

    def hidden(self, clock: Clock | None = None) -> Hidden:
        return Hidden(self, clock or SystemClock())

    async def reserved(self, count: int = 1, clock: Clock | None = None) -> Hidden:
        """A hidden node that holds `count` reservations."""
        made = self.hidden(clock)
        made.reservations.start()
        await until(lambda: len(made.reservations.held()) == count)
        return made

    async def liar(self, behave: Callable[[Channel], Awaitable[None]]) -> Liar:
        made = Liar(self, behave)
        listener = await made.transport.listen(self.place, 0, made.serve)
        self.stack.push_async_callback(listener.close)
        made.address = listener.address
        return made

    async def settled(self) -> None:
        """Wait until no circuit, and no task of one, is left anywhere."""
        for sentinel in self.sentinels:
            await until(lambda sentinel=sentinel: sentinel.relay.figures().circuits == 0)
            await until(lambda sentinel=sentinel: not sentinel.node.links._surrendered)
        await until(lambda: not leftovers())


def leftovers() -> list[str]:
    """Tasks of circuits."""
    names = (task.get_name() for task in asyncio.all_tasks())
    kinds = ("relay ", "relayed:", "send over a circuit", "reservations:join", "dial through")
    return [name for name in names if name.startswith(kinds)]


class Sentinel:
    """A node that relays."""

    def __init__(self, town: Town, limits: RelayLimits) -> None:
        identity = town.identity()
        self.town = town
        self.id = identity.node
        self.address = ""
        clock, rng = SystemClock(), random.Random(1)
        transport = town.transport(identity)
        self.node = Node(identity, transport, clock, rng, role="sentinel", version="test")
        self.relay = RelayService(self.node, random.Random(2), limits)

    async def start(self) -> None:
        place = self.town.place
        self.address = await self.node.start(place, 0, (), (place,))
        self.relay.start()
        self.town.stack.push_async_callback(self.end)

    async def end(self) -> None:
        await self.relay.close()
        await self.node.stop()


class Hidden:
    """A node that listens nowhere; keeps what comes."""

    def __init__(self, town: Town, clock: Clock) -> None:
        identity = town.identity()
        self.id = identity.node
        self.town = town
        self.clock = clock
        self.base = town.transport(identity)
        self.transport = CircuitTransport(self.base, self.id)
        self.links = Links(self.transport, self.id)
        self.known: list[Candidate] | None = None
        self.changes: list[tuple[str, ...]] = []
        self.came: list[tuple[AnyMessage, bytes]] = []
        self.ended: list[Link] = []
        self.reservations = Reservations(self, self.base, self.candidates, random.Random(3))
        self.reservations.on_change = lambda: self.changes.append(self.reservations.addresses())
        self.links.handle(BundlePart, self._hear)
        self.links.on_ended(self.ended.append)
        town.stack.push_async_callback(self.close)

    def candidates(self) -> list[Candidate]:
        if self.known is not None:
            return self.known
        return [
            Candidate(sentinel.id, (sentinel.address,), round_trip=0.001 * at)
            for at, sentinel in enumerate(self.town.sentinels)
        ]

    async def _hear(self, _link: Link, message: AnyMessage, body: memoryview) -> None:
        self.came.append((message, bytes(body)))

    async def to(self, other: Hidden) -> Link:
        return await self.links.to(other.id, other.reservations.addresses())

    async def says(self, link: Link, number: int, other: Hidden, body: bytes = b"") -> None:
        """Send something over `link` and see it arrive."""
        message = BundlePart(DIGEST, number, number)
        await link.send(message, body)
        await until(lambda: (message, body) in other.came)

    async def close(self) -> None:
        await self.reservations.close()
        await self.links.close()


class Liar:
    """A sentinel that does as a test likes with each channel."""

    def __init__(self, town: Town, behave: Callable[[Channel], Awaitable[None]]) -> None:
        identity = town.identity()
        self.id: NodeId = identity.node
        self.transport = town.transport(identity)
        self.address = ""
        self.channels: list[Channel] = []
        self.serving = 0
        self._behave = behave

    async def serve(self, channel: Channel) -> None:
        self.channels.append(channel)
        self.serving += 1
        try:
            await self._behave(channel)
            while True:
                await channel.receive()
        except ChannelClosed:
            pass
        finally:
            self.serving -= 1

    def candidate(self) -> Candidate:
        return Candidate(self.id, (self.address,))

    def way_to(self) -> str:
        return str(RelayedAddress(self.id, self.address))


async def ask(channel: Channel) -> AnyMessage | None:
    """The next message of a channel."""
    return decode(await channel.receive())[0]


async def tell(channel: Channel, *messages: AnyMessage) -> None:
    for message in messages:
        await channel.send(encode(message))
