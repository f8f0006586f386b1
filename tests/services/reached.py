"""Nodes that find out how others reach them, over sockets: what `running.run_node` builds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.dial_back import DialBack
from diffuse_core.services.node import Node
from diffuse_core.services.reachability import Reachability
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations, sentinels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from diffuse_core.domain.reachability import RelayMode
    from diffuse_core.domain.records import Role
    from diffuse_core.ports import Channel, Listener, Transport

LOOPBACK = "127.0.0.1"


class Walled(WebSocketTransport):
    """Of a machine that lets nobody in: its port is known, and closed."""

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> Listener:
        listener = await super().listen(host, port, accept)
        await listener.close()
        return listener


@dataclass(eq=False)
class Member:
    """A node and what it does about its reachability."""

    node: Node
    address: str
    reachability: Reachability
    relays: Reservations
    dial_back: DialBack | None = None

    def told(self, other: Node) -> tuple[str, ...]:
        """What `other` knows of where this node is met."""
        return other.addresses(self.node.id)


class Reached:
    """What the nodes of a test have in common. Everything ends with `stack`."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.bootstrap: tuple[str, ...] = ()
        self.seeds = iter(range(1, 256))

    async def sentinel(self, *, honest: bool = True) -> Member:
        """One that dials back (unless it is not honest) and relays; all know it from then on."""
        made = await self.start("sentinel", honest=honest)
        self.bootstrap = (*self.bootstrap, made.address)
        return made

    async def start(
        self,
        role: Role = "host",
        mode: RelayMode = "auto",
        kind: type[WebSocketTransport] = WebSocketTransport,
        own: tuple[str, ...] = (LOOPBACK,),
        *,
        honest: bool = True,
        named: bool = False,
    ) -> Member:
        identity = Identity(bytes([next(self.seeds)]) * 32)
        base: Transport = kind(identity, "test")
        transport = CircuitTransport(base, identity.node)
        rng = random.Random(identity.node)
        node = Node(identity, transport, SystemClock(), rng, role=role, version="test")
        transport.addresses = node.sentinel_addresses
        relays = Reservations(
            node, base, lambda: sentinels(node, node.id, node.discovery.reached()), rng
        )
        self.stack.push_async_callback(relays.close)
        self.stack.push_async_callback(node.stop)
        back: DialBack | None = None
        if role == "sentinel":
            relay = RelayService(node, rng)
            relay.start()
            self.stack.push_async_callback(relay.close)
            if honest:
                back = DialBack(node.links, base, node.clock)
                self.stack.push_async_callback(back.close)
        told = () if mode == "always" else own
        address = await node.start(LOOPBACK, 0, self.bootstrap, told)
        relayed = None if role == "sentinel" or mode == "never" else relays
        reachability = Reachability(node, mode, relayed, rng)
        relays.on_change = reachability.changed
        self.stack.push_async_callback(reachability.close)
        port = int(address.rpartition(":")[2])
        reachability.start(port, node.addresses(node.id), named=named)
        return Member(node, address, reachability, relays, back)
