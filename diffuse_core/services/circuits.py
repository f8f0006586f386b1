"""Circuits: channels to nodes that cannot be dialled, through a Sentinel that reads nothing.

Both ends open a channel of their own to the Sentinel, which joins the two. Inside it they run a
handshake with each other, as they would over a wire that anybody may listen to.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.domain.channel import MAX_HANDSHAKE_BYTES
from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES, Joiner, cut
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.relay_messages import CircuitReady, JoinCircuit, OpenCircuit, RelayRefused
from diffuse_core.domain.relayed_address import RelayedAddress, is_relayed, parse_relayed
from diffuse_core.domain.sealed_stream import MAX_SEALED_BYTES
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.places import Places, dialable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.relay_messages import RelayProblem
    from diffuse_core.ports import Carrier, Channel, Listener, Transport

MAX_PLACES = 3
"""Addresses of one Sentinel that are tried for one circuit."""
HANG_UP_S = 0.25
"""What an attempt that failed may take to end its channel, beyond its timeout."""

_WHY: dict[RelayProblem, str] = {
    "unknown": "has no reservation of node {}: it may have moved or stopped; try again",
    "busy": "has no room for more circuits; try again in a moment",
    "limit": "lets this node have no more circuits at a time; try again when others have ended",
    "gone": "did not get node {} to answer: it may be busy or gone; try again",
}


class CircuitCarrier:
    """Implements ports.Carrier over a channel to a Sentinel that serves one circuit.

    What was begun to be sent is sent whole, also when the sender is cancelled: half a message
    would end the circuit for everybody else who uses it. Only short messages are taken before
    `trust`: until then anybody may be at the other end.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._joiner = Joiner(MAX_HANDSHAKE_BYTES)
        self._order = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()

    def trust(self) -> None:
        """Take messages of any size from now on: the other end is proven."""
        self._joiner.most = MAX_SEALED_BYTES

    @property
    def remote_address(self) -> str:
        """HOST:PORT of the Sentinel."""
        return self._channel.remote_address

    @property
    def relayed_through(self) -> NodeId | None:
        """The Sentinel."""
        return self._channel.remote

    async def send(self, wire: bytes) -> None:
        """Send one message, in pieces. Raises ChannelClosed."""
        task = asyncio.create_task(self._send(wire), name="send over a circuit")
        self._sending.add(task)
        task.add_done_callback(self._sent)
        await asyncio.shield(task)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            # Whoever sent it may be gone; the reader learns of an end anyhow.
            task.exception()

    async def _send(self, wire: bytes) -> None:
        async with self._order:
            for piece in cut(wire):
                await self._channel.send(piece)

    async def receive(self) -> bytes:
        """The next message. Raises ChannelClosed."""
        while True:
            wire = self._joiner.take(await self._channel.receive())
            if wire is not None:
                return wire

    async def close(self) -> None:
        """End it; idempotent; returns within a bounded time."""
        await self._channel.close()


class CircuitTransport:
    """Implements ports.Transport: dials relayed addresses too, and leaves the rest to `base`.

    `own` is this node's id and `allowed` the nodes it may talk to, None for all. `addresses` is
    to be set by whoever knows the Sentinels: it gives their own addresses, () for what is no live
    Sentinel, which is not dialled then, and None when it knows nobody yet. `places` is told what
    was found at each.
    """

    def __init__(
        self, base: Transport, own: NodeId, allowed: Collection[NodeId] | None = None
    ) -> None:
        self.base = base
        self.addresses: Callable[[NodeId], Sequence[str] | None] = lambda _: None
        self.places = Places()
        self._own = own
        self._allowed = allowed

    async def dial(
        self,
        address: str,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
    ) -> Channel:
        """Open a channel to HOST:PORT, or through a Sentinel (see ports.Transport.dial)."""
        if not is_relayed(address):
            return await self.base.dial(address, expected, timeout)
        way = parse_relayed(address)
        if way is None:
            raise Unreachable(
                f"{address!r} is no relayed address; write relay:SENTINEL@HOST:PORT, where "
                "SENTINEL has 64 hexadecimal digits"
            )
        if expected is None:
            raise Unreachable(
                f"{address} leads to many nodes: the id of the one that is wanted must be known"
            )
        if expected == way.sentinel:
            return await self.base.dial(way.address, expected, timeout)
        self._check(way.sentinel, expected)
        try:
            async with asyncio.timeout(timeout):
                return await self._through(way, expected, timeout)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer from node {short_text(expected)} through sentinel "
                f"{short_text(way.sentinel)} at {way.address} within {timeout:g} s; try again"
            ) from error

    def _check(self, sentinel: NodeId, wanted: NodeId) -> None:
        if wanted == self._own:
            raise Unreachable(
                "that is a relayed address of this node itself; there is nothing to dial"
            )
        if sentinel == self._own:
            raise Unreachable(
                f"node {short_text(wanted)} is met through this very node, and is not connected "
                "to it now; wait until it comes back"
            )
        if self._allowed is not None and sentinel not in self._allowed:
            raise Unreachable(
                f"node {short_text(wanted)} is met through sentinel {short_text(sentinel)}, which "
                "is not on this node's allow list; add it there"
            )

    async def _through(self, way: RelayedAddress, wanted: NodeId, within: float) -> Channel:
        until = asyncio.get_running_loop().time() + within
        channel = await self._dial_sentinel(way, wanted, until)

        async def secure(carrier: Carrier) -> Channel:
            left = until - asyncio.get_running_loop().time()
            return await self.base.secure(carrier, wanted, max(0.0, left), dialled=True)

        return await _circuit(channel, OpenCircuit(wanted), wanted, secure)

    async def _dial_sentinel(self, way: RelayedAddress, wanted: NodeId, until: float) -> Channel:
        known = self.addresses(way.sentinel)
        if known is not None and not known:
            # As after silence: it says nothing of the node that is wanted.
            raise Unreachable(
                f"node {short_text(wanted)} is met through {short_text(way.sentinel)}, which is "
                "no live sentinel as far as is known here; try again when that is heard of"
            ) from TimeoutError("unknown sentinel")
        told = (way.address, *(place for place in known or () if not is_relayed(place)))
        places = list(dict.fromkeys(filter(dialable, told)))[:MAX_PLACES]
        problem = Unreachable("no address of it is known")
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            seconds = until - asyncio.get_running_loop().time()
            try:
                # Something is left for the circuit itself.
                with self.places.looking(place, wanted):
                    share = max(0.0, seconds) / (left + 1)
                    channel = await self.base.dial(place, way.sentinel, share)
            except Unreachable as error:
                problem = error
            else:
                self.places.answered(place, way.sentinel)
                return channel
        raise Unreachable(
            f"node {short_text(wanted)} is met through sentinel {short_text(way.sentinel)}, "
            f"which cannot be reached: {problem}"
        ) from _cause(problem)

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> Listener:
        """Accept channels on a port (see ports.Transport.listen)."""
        return await self.base.listen(host, port, accept)

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
        *,
        dialled: bool,
    ) -> Channel:
        """Make a channel over a carrier (see ports.Transport.secure)."""
        return await self.base.secure(carrier, expected, timeout, dialled=dialled)


async def join(
    base: Transport,
    way: RelayedAddress,
    circuit: bytes,
    source: NodeId,
    timeout: float,  # noqa: ASYNC109 - as that of the port
) -> Channel:
    """Take a circuit that a Sentinel offered: a channel to `source`, who asked for this node.

    Args:
        base: makes channels; never through circuits.
        way: the Sentinel, and where to dial it.
        circuit: its id, as it was offered.
        source: who must prove to be at the other end.
        timeout: seconds that all of it may take.

    Raises:
        Unreachable: the Sentinel cannot be dialled, the circuit is gone, or another node is there.
    """
    until = asyncio.get_running_loop().time() + timeout

    async def secure(carrier: Carrier) -> Channel:
        left = until - asyncio.get_running_loop().time()
        return await base.secure(carrier, source, max(0.0, left), dialled=False)

    try:
        async with asyncio.timeout_at(until):
            channel = await base.dial(way.address, way.sentinel, timeout)
            return await _circuit(channel, JoinCircuit(circuit), source, secure)
    except TimeoutError as error:
        raise Unreachable(
            f"node {short_text(source)} asked for a circuit through sentinel "
            f"{short_text(way.sentinel)} and did not use it within {timeout:g} s"
        ) from error


async def _circuit(
    channel: Channel,
    request: OpenCircuit | JoinCircuit,
    other: NodeId,
    secure: Callable[[Carrier], Awaitable[Channel]],
) -> Channel:
    """Make a fresh channel to a Sentinel one to `other`; it is closed where that fails."""
    sentinel = channel.remote
    try:
        await channel.send(encode(request))
        await _ready(channel, other)
        channel.narrow(MAX_PIECE_BYTES)
        carrier = CircuitCarrier(channel)
        made = await secure(carrier)
        carrier.trust()
    except BaseException as error:
        with contextlib.suppress(TimeoutError, ChannelClosed):
            async with asyncio.timeout(HANG_UP_S):
                await channel.close()
        if isinstance(error, Unreachable):
            raise Unreachable(
                f"no way to node {short_text(other)} through sentinel {short_text(sentinel)} at "
                f"{channel.remote_address}: {error}"
            ) from _cause(error)
        raise
    return made


async def _ready(channel: Channel, other: NodeId) -> None:
    # Gossip may come first: to the Sentinel this was a channel like any other.
    while True:
        answer, _ = decode(await channel.receive())
        if isinstance(answer, CircuitReady):
            return
        if isinstance(answer, RelayRefused):
            refusal = Unreachable("it " + _WHY[answer.problem].format(short_text(other)))
            if answer.problem == "unknown":
                raise refusal
            # As after silence: a node is not dead because its Sentinel is busy.
            raise refusal from TimeoutError(answer.problem)
        if isinstance(answer, NotAllowed):
            raise Unreachable("it talks to the nodes on its allow list only")


def _cause(error: Unreachable) -> BaseException:
    """What `error` is to be told of as: silence stays silence."""
    return error.__cause__ if isinstance(error.__cause__, TimeoutError) else error
