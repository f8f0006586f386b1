"""The splice: frames of one channel go out on another and back, at a pace, unread.

Each direction has one frame in hand and reads the next one when that is gone: who sends faster
than the other end reads, or than the pace allows, is held up by its own connection.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
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
    """A token bucket of bytes, shared evenly among the nodes that wait for it.

    Self-clocked fair queueing (Golestani, 1994): a piece is due when its node has had as much as
    the others had meanwhile. So a node gets the same with one circuit and with many, its own
    pieces pass in order, and a short one of a node that was quiet passes before long ones.
    """

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._allowance = Allowance(max(MAX_PIECE_BYTES, per_s * BURST_S), per_s)
        self._clock = clock
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        """A heap: when it is due, its number, its size, who waits."""
        self._due: dict[NodeId, int] = {}
        """When the last piece of a node is due, in bytes as `_passed`."""
        self._passed = 0
        self._count = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, node: NodeId, amount: int) -> None:
        """Return when `amount` (at most MAX_PIECE_BYTES) may pass, on the account of `node`."""
        due = max(self._passed, self._due.pop(node, 0)) + amount
        self._due[node] = due
        forget_oldest(self._due, MAX_PACED)
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (due, next(self._count), amount, turn))
        self._serve()
        await turn

    def _serve(self) -> None:
        """Let pass what may, and come back when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        while self._waiting:
            due, _, amount, turn = self._waiting[0]
            if not turn.done():
                if not self._allowance.spend(amount, now):
                    wait = self._allowance.ready_at(amount, now) - now
                    self._timer = asyncio.get_running_loop().call_later(wait, self._serve)
                    return
                turn.set_result(None)
                self._passed = due
            heapq.heappop(self._waiting)


class Pace:
    """How fast bytes may pass: of each node, and of all together.

    Frames of a circuit count, both ways, for the node that opened it: what a Host answers to many
    is not held up as if it were one's alone.
    """

    def __init__(self, limits: RelayLimits, clock: Clock) -> None:
        self._per_node = limits.node_bytes_per_s
        self._clock = clock
        self._all = Turns(limits.total_bytes_per_s, clock)
        self._nodes: dict[NodeId, Turns] = {}

    def toll(self, one: NodeId, other: NodeId) -> Toll:
        """What frames of a circuit that `one` opened to `other` wait for."""
        turns = (self._of(one), self._of(other), self._all)
        forget_oldest(self._nodes, MAX_PACED)

        async def pay(amount: int) -> None:
            for one_of in turns:
                await one_of.take(one, amount)

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
