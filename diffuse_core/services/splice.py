"""The splice: frames of one channel go out on another and back, at a pace, unread.

Each direction has one frame in hand and reads the next one when that is gone: who sends faster
than the other end reads, or than the pace allows, is held up by its own connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.allowances import Allowance
from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.relay import RelayLimits
    from diffuse_core.ports import Channel, Clock

    Toll = Callable[[int], Awaitable[None]]

BURST_S = 0.25
"""How much of its pace a node may have saved up."""
MAX_PACED = 1024
"""Nodes whose pace is remembered: many more than have circuits at a time."""


class Turns:
    """A token bucket of bytes, handed out in the order in which they were asked for."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._allowance = Allowance(max(MAX_PIECE_BYTES, per_s * BURST_S), per_s)
        self._clock = clock
        # Locks of asyncio let in whoever came first.
        self._order = asyncio.Lock()

    async def take(self, amount: int) -> None:
        """Return when `amount` (at most MAX_PIECE_BYTES) may pass, and all before it may."""
        async with self._order:
            now = self._clock.monotonic()
            while not self._allowance.spend(amount, now):
                await asyncio.sleep(self._allowance.ready_at(amount, now) - now)
                now = self._clock.monotonic()


class Pace:
    """How fast bytes may pass: of each node, and of all together.

    A circuit waits with one frame at a time. So at any of these buckets all that wait have their
    turn before one of them has its second.
    """

    def __init__(self, limits: RelayLimits, clock: Clock) -> None:
        self._per_node = limits.node_bytes_per_s
        self._clock = clock
        self._all = Turns(limits.total_bytes_per_s, clock)
        self._nodes: dict[NodeId, Turns] = {}

    def toll(self, one: NodeId, other: NodeId) -> Toll:
        """What frames between these two nodes wait for."""
        turns = (self._of(one), self._of(other), self._all)
        forget_oldest(self._nodes, MAX_PACED)

        async def pay(amount: int) -> None:
            for one_of in turns:
                await one_of.take(amount)

        return pay

    def _of(self, node: NodeId) -> Turns:
        turns = self._nodes.pop(node, None) or Turns(self._per_node, self._clock)
        self._nodes[node] = turns
        return turns


async def splice(
    source: Channel,
    target: Channel,
    toll: Toll,
    over: asyncio.Future[None],
    *,
    first: asyncio.Task[bytes],
    stalled_s: float,
) -> str:
    """Copy frames both ways until one end is gone or misbehaves, or `over` is set; say why.

    `first` reads the first frame of `source`. Nothing runs on when this returns, and both
    channels are left as they are.
    """
    pumps = [
        asyncio.create_task(_pump(source, target, toll, stalled_s, first), name="relay out"),
        asyncio.create_task(_pump(target, source, toll, stalled_s), name="relay back"),
    ]
    try:
        waiting: list[asyncio.Future[Any]] = [*pumps, over]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return next((pump.result() for pump in pumps if pump.done()), "it was ended here")
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    source: Channel,
    sink: Channel,
    toll: Toll,
    stalled_s: float,
    first: asyncio.Task[bytes] | None = None,
) -> str:
    try:
        frame = await (first or source.receive())
        while len(frame) <= MAX_PIECE_BYTES:
            await toll(len(frame))
            async with asyncio.timeout(stalled_s):
                await sink.send(frame)
            frame = await source.receive()
    except ChannelClosed:
        return "one end closed its channel or was lost"
    except TimeoutError:
        return f"one end did not read for {stalled_s:g} s"
    return "one end sent more at once than a piece holds"
