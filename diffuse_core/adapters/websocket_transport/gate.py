"""Who may keep a connection to the listening port, and who gives way when it is full."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from websockets.asyncio.server import ServerConnection

from diffuse_core.adapters.websocket_transport.connection import StrangerLimit, format_address
from diffuse_core.domain.reachability import ip_of, neighbourhood

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Mapping

    from diffuse_core.adapters.websocket_transport.unfinished import Unfinished
    from diffuse_core.domain.identity import NodeId

PATIENCE_S = 1.0
MAX_STRANGERS = 64
MAX_CONNECTIONS = 512
"""Of which the other end is proven."""
MAX_PER_NODE = 96
"""At a Sentinel a node has 64 circuits to it, 16 from it and its links; and some to spare."""
CROWD = 16
"""From so many on the connections of one node, or from one place, give way to others."""
KEPT = 8
"""Places that only this machine may take, so that a node's owner can always stop it."""


class Gate:
    """Counts connections, so that nobody can fill memory or lock honest nodes out."""

    def __init__(self, strangers: int, connections: int) -> None:
        self._max_strangers = strangers
        self._max_connections = connections
        self.strangers: dict[Inbound, None] = {}
        self.proven: dict[Inbound, NodeId] = {}

    def enter(self, connection: Inbound) -> None:
        """A connection was accepted by the kernel: keep it or drop it."""
        if _full(self.strangers, self._max_strangers, connection) and not self._make_room(
            connection
        ):
            connection.transport.abort()
            return
        self.strangers[connection] = None

    def admit(self, connection: Inbound, node: NodeId) -> bool:
        """Its other end is proven; whether it may stay."""
        if self.strangers.pop(connection, connection) is not None:
            return False
        if sum(one == node for one in self.proven.values()) >= MAX_PER_NODE:
            return False
        if _full(self.proven, self._max_connections, connection):
            evicted = self._of_a_crowd(connection, node)
            if evicted is None:
                return False
            self.leave(evicted)
            evicted.transport.abort()
        self.proven[connection] = node
        return True

    def leave(self, connection: Inbound) -> None:
        """It is gone."""
        self.strangers.pop(connection, None)
        self.proven.pop(connection, None)

    def _of_a_crowd(self, newcomer: Inbound, node: NodeId) -> Inbound | None:
        """Whose place somebody of a smaller crowd may have: a node's, or else an origin's."""
        by_node = dict(self.proven)
        # Many nodes may live on this machine, and come through a tunnel that ends on it.
        by_origin = {one: one.origin for one in self.proven if not one.local}
        return _youngest(by_node, node) or _youngest(by_origin, newcomer.origin)

    def _make_room(self, newcomer: Inbound) -> bool:
        # An honest node is through in milliseconds. Those that just came keep their place, or a
        # burst of honest ones would throw each other out for ever.
        oldest = next(iter(self.strangers))
        if oldest.loop.time() - oldest.opened_at < PATIENCE_S:
            # Unless most come from one machine: then that one makes room for others.
            crowd, size = Counter(one.origin for one in self.strangers).most_common(1)[0]
            if crowd == newcomer.origin or size <= self._max_strangers // 2:
                return False
            oldest = next(one for one in self.strangers if one.origin == crowd)
        self.leave(oldest)
        oldest.transport.abort()
        return True


class Inbound(StrangerLimit, ServerConnection):
    """An accepted connection that reports to the gate."""

    def __init__(self, gate: Gate, unfinished: Unfinished, *args: Any, **kwargs: Any) -> None:
        super().__init__(unfinished, *args, **kwargs)
        self._gate = gate
        self.opened_at = self.loop.time()
        self.origin = ""
        self.local = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the TCP connection stands."""
        super().connection_made(transport)
        there = transport.get_extra_info("peername")
        self.origin = origin_of(there)
        self.local = is_local(there, transport.get_extra_info("sockname"))
        self._gate.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when it is gone."""
        self._gate.leave(self)
        super().connection_lost(exc)


def _full(held: dict[Inbound, Any], most: int, newcomer: Inbound) -> bool:
    if len(held) >= most:
        return True
    kept = min(KEPT, most // 8)
    return not newcomer.local and sum(not one.local for one in held) >= most - kept


def _youngest(crowds: Mapping[Inbound, Hashable], own: Hashable) -> Inbound | None:
    """The newest connection of the largest crowd, where that is larger than one's own would be.

    Not the oldest, which may be the reservation that all the circuits of a node hang on.
    """
    sizes = Counter(crowds.values())
    if not sizes:
        return None
    crowd, size = sizes.most_common(1)[0]
    if size < CROWD or size <= sizes[own] + 1:
        return None
    return next(one for one in reversed(tuple(crowds)) if crowds[one] == crowd)


def origin_of(sockaddr: tuple[str, int] | None) -> str:
    """Who is behind a connection when it comes to limits; nobody when it is gone already."""
    if sockaddr is None:
        return ""
    ip = ip_of(format_address(sockaddr))
    return neighbourhood(ip) if ip else sockaddr[0]


def is_local(there: tuple[str, int] | None, here: tuple[str, int] | None) -> bool:
    """Whether a connection comes from this machine: over loopback, or from the IP it came to."""
    if there is None or here is None:
        return False
    ip = ip_of(format_address(there))
    return there[0] == here[0] or (ip is not None and ip.is_loopback)
