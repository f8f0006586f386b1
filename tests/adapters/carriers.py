"""Carriers between two ends in one process, which a test may tamper with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Callable

SENTINEL = NodeId(b"\x09" * 32)


class QueueCarrier:
    """One end; implements ports.Carrier.

    `change` gives what arrives instead of a message, `tap` sees what is sent. `stuck` keeps what
    is sent waiting for ever.
    """

    remote_address = "sentinel:1"
    relayed_through = SENTINEL

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other = self
        self.closed = False
        self.stuck = False
        self.tap: Callable[[bytes], object] = len
        self.change: Callable[[bytes], list[bytes]] = lambda wire: [wire]

    async def send(self, wire: bytes) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        if self.closed:
            raise ChannelClosed("the carrier ended")
        self.tap(wire)
        for message in self.change(wire):
            self.other.inbox.put_nowait(message)

    async def receive(self) -> bytes:
        wire = await self.inbox.get()
        if wire is None:
            self.inbox.put_nowait(None)
            raise ChannelClosed("the carrier ended")
        return wire

    async def close(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.closed = True
                end.inbox.put_nowait(None)


def carriers() -> tuple[QueueCarrier, QueueCarrier]:
    """Two ends; what one sends the other receives, also after an end."""
    near, far = QueueCarrier(), QueueCarrier()
    near.other, far.other = far, near
    return near, far
