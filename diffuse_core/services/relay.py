"""The relay: a Sentinel carries the bytes of nodes that cannot be dialled, and cannot read them.

It never dials: a circuit is made of two channels that others opened to it. What may be is decided
in domain.relay, how bytes pass in services.splice. Who talks to whom is written nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.codec import encode
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.reachability import ip_of, neighbourhood
from diffuse_core.domain.relay import Granted, Opened, RelayBook, RelayLimits
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    CircuitReady,
    DeclineCircuit,
    JoinCircuit,
    OpenCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.errors import ChannelClosed
from diffuse_core.services.splice import Pace, splice
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.relay_messages import RelayProblem
    from diffuse_core.domain.view import RelayFigures
    from diffuse_core.ports import Channel
    from diffuse_core.services.directory import Directory
    from diffuse_core.services.links import Link

log = logging.getLogger(__name__)

CLOSE_S = 2.0
SERVING_FOR_S = 1.0
"""How long a look at the members holds: they may be thousands, and anybody may ask."""

_READY = encode(CircuitReady())
_DETAILS: dict[RelayProblem, str] = {
    "unknown": "that node has no reservation here",
    "busy": "all room of this sentinel is taken; try another one, or later",
    "limit": "one node may not have more than that here",
    "gone": "the other end did not come, or ended",
}
_OWN_CHANNEL = "a circuit takes a channel of its own, dialled to the sentinel"


class _Circuit:
    """What the two handlers of a circuit tell each other."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.joined: asyncio.Future[Channel] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self.ended = asyncio.Event()

    def end(self) -> None:
        """Ask for its end; idempotent."""
        if not self.over.done():
            self.over.set_result(None)


class RelayService:
    """Relays for other nodes, from `start` to `close`."""

    def __init__(
        self, node: Directory, rng: random.Random, limits: RelayLimits | None = None
    ) -> None:
        self._node = node
        self._links = node.links
        self._clock = node.clock
        self._rng = rng
        self._limits = limits or RelayLimits()
        self._book = RelayBook(self._limits)
        self._pace = Pace(self._limits, node.clock)
        self._tasks = TaskOwner("relay")
        self._wake = asyncio.Event()
        self._reserved: dict[NodeId, Link] = {}
        self._circuits: dict[bytes, _Circuit] = {}
        self._bytes = 0
        self.refused: Counter[str] = Counter()
        """What was refused since the start, by problem."""
        self.reserved = self.carried = 0
        """Reservations granted, prolonged ones as well, and circuits that came about."""
        self._serving: frozenset[bytes] = frozenset()
        self._looked_at = -math.inf

    def start(self) -> None:
        """Answer those who want something relayed."""
        self._links.handle(Reserve, self._on_reserve)
        self._links.handle(Release, self._on_release)
        self._links.handle(OpenCircuit, self._on_open)
        self._links.handle(JoinCircuit, self._on_join)
        self._links.handle(DeclineCircuit, self._on_decline)
        self._links.on_ended(self._on_ended)
        self._tasks.spawn(self._watch(), "watch")

    async def close(self) -> None:
        """End every circuit and answer no more, within a bounded time; idempotent."""
        self._links.unhandle(Reserve, Release, OpenCircuit, JoinCircuit, DeclineCircuit)
        self._links.off_ended(self._on_ended)
        circuits = tuple(self._circuits.values())
        for circuit in circuits:
            circuit.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for circuit in circuits:
                    await circuit.ended.wait()
        await self._tasks.close()

    def figures(self) -> RelayFigures:
        """How busy it is."""
        return self._book.figures(self._bytes)

    # --- reservations -----------------------------------------------------------------

    async def _on_reserve(self, link: Link, _message: Reserve, _body: memoryview) -> None:
        if link.relayed_through is not None:
            self.refused["limit"] += 1
            await link.send(RelayRefused("limit", "reserve over a direct link"))
            return
        now = self._clock.monotonic()
        serving = self._serves(link.remote)
        granted = self._book.reserve(link.remote, _origin(link), now, serving=serving)
        if not isinstance(granted, Granted):
            self.refused[granted] += 1
            await link.send(_refusal(granted))
            return
        self.reserved += 1
        self._reserved[link.remote] = link
        self._wake.set()
        if granted.displaced is not None:
            self._tell_displaced(granted.displaced)
        await link.send(Reserved(granted.seconds))

    def _tell_displaced(self, node: NodeId) -> None:
        link = self._reserved.pop(node, None)
        if link is not None:
            self._tasks.spawn(self._try_send(link, _refusal("busy")), "displace")

    async def _try_send(self, link: Link, message: RelayRefused) -> None:
        with contextlib.suppress(ChannelClosed):
            await link.send(message)

    async def _on_release(self, link: Link, _message: Release, _body: memoryview) -> None:
        self._reserved.pop(link.remote, None)
        self._book.release(link.remote)

    def _on_ended(self, link: Link) -> None:
        if self._reserved.get(link.remote) is link:
            del self._reserved[link.remote]
            self._book.link_ended(link.remote, self._clock.monotonic())
            self._wake.set()

    def _serves(self, node: NodeId) -> bool:
        now = self._clock.monotonic()
        if now - self._looked_at >= SERVING_FOR_S:
            self._looked_at = now
            self._serving = frozenset(
                member.record.node
                for member in self._node.members()
                if member.live and member.record.role == "host" and member.record.holding
            )
        return node in self._serving

    # --- circuits ---------------------------------------------------------------------

    async def _on_open(self, link: Link, message: OpenCircuit, _body: memoryview) -> None:
        channel = await self._take_over(link)
        if channel is None:
            return
        problem = await self._carry(channel, NodeId(message.target))
        if problem is not None:
            await self._refuse(channel, problem)

    async def _on_join(self, link: Link, message: JoinCircuit, _body: memoryview) -> None:
        channel = await self._take_over(link)
        if channel is None:
            return
        if not self._book.join(message.circuit, channel.remote, self._clock.monotonic()):
            # The same answer to every wrong id: there is nothing to be found out.
            await self._refuse(channel, "gone")
            return
        circuit = self._circuits[message.circuit]
        circuit.joined.set_result(channel)
        # Who opened the circuit reads and writes this channel, too.
        await circuit.ended.wait()

    async def _on_decline(self, link: Link, message: DeclineCircuit, _body: memoryview) -> None:
        if self._book.decline(message.circuit, link.remote):
            self._circuits[message.circuit].end()

    async def _take_over(self, link: Link) -> Channel | None:
        if link.dialled or link.relayed_through is not None:
            self.refused["limit"] += 1
            await link.send(RelayRefused("limit", _OWN_CHANNEL))
            return None
        channel = await self._links.surrender(link)
        # What it sends lies here while the other end does not read.
        channel.narrow(MAX_PIECE_BYTES)
        return channel

    async def _refuse(self, channel: Channel, problem: RelayProblem) -> None:
        self.refused[problem] += 1
        with contextlib.suppress(ChannelClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await channel.send(encode(_refusal(problem)))

    async def _carry(self, channel: Channel, target: NodeId) -> RelayProblem | None:
        """Carry a circuit from its opening to its end; a problem if it never came about."""
        name, source = self._rng.randbytes(16), channel.remote
        now = self._clock.monotonic()
        opened = self._book.open(
            name, source, target, now, origin=_origin(channel), serving=self._serves(source)
        )
        if not isinstance(opened, Opened):
            return opened
        if opened.displaced is not None:
            self._circuits[opened.displaced].end()
        circuit = self._circuits[name] = _Circuit()
        self._wake.set()
        first = asyncio.create_task(channel.receive(), name="relay first")
        offer = asyncio.create_task(
            _offer(circuit, self._reserved[target], CircuitOffered(name, source)),
            name="relay offer",
        )
        try:
            other = await _meet(circuit, first)
            if other is None:
                return "gone"
            self.carried += 1
            await self._run(name, circuit, channel, other, first)
        finally:
            del self._circuits[name]
            self._book.closed(name)
            circuit.ended.set()
            first.cancel()
            offer.cancel()
            await asyncio.gather(first, offer, return_exceptions=True)
        return None

    async def _run(
        self,
        name: bytes,
        circuit: _Circuit,
        source: Channel,
        target: Channel,
        first: asyncio.Task[bytes],
    ) -> None:
        stalled_s = self._limits.stalled_s
        wait = self._pace.toll(source.remote, target.remote)

        async def toll(amount: int) -> None:
            await wait(amount)
            self._bytes += amount
            self._book.moved(name, self._clock.monotonic())

        try:
            async with asyncio.timeout(stalled_s):
                await target.send(_READY)
                await source.send(_READY)
        except (ChannelClosed, TimeoutError):
            return
        why = await splice(source, target, toll, circuit.over, first=first, stalled_s=stalled_s)
        log.debug("a circuit ended: %s", why)

    # --- time -------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            for name in self._book.tick(self._clock.monotonic()):
                self._circuits[name].end()
            wait = self._book.next_deadline() - self._clock.monotonic()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait == math.inf else max(0.001, wait)):
                    await self._wake.wait()


async def _offer(circuit: _Circuit, link: Link, offered: CircuitOffered) -> None:
    try:
        await link.send(offered)
    except ChannelClosed:
        circuit.end()


async def _meet(circuit: _Circuit, first: asyncio.Task[bytes]) -> Channel | None:
    """The other half; None when it does not come, or the first one is gone meanwhile."""
    waiting: set[asyncio.Future[Any]] = {first, circuit.joined, circuit.over}
    while not circuit.over.done():
        if circuit.joined.done():
            return circuit.joined.result()
        if first.done():
            if first.exception() is not None:
                return None
            waiting.discard(first)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    return None


def _origin(of: Link | Channel) -> str:
    ip = ip_of(of.remote_address)
    return neighbourhood(ip) if ip else of.remote_address


def _refusal(problem: RelayProblem) -> RelayRefused:
    return RelayRefused(problem, _DETAILS[problem])
