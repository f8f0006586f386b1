"""A channel of a node to itself: a Client that also hosts is a Stage of its own Routes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

QUEUE_FRAMES = 256


class LoopbackChannel:
    """One end of an in-process channel; implements ports.Channel."""

    relayed_through: NodeId | None = None

    def __init__(self, own: NodeId) -> None:
        self.remote = own
        self.remote_address = "local"
        self._inbox: deque[bytes] = deque()
        self._other: LoopbackChannel = self
        self._changed = asyncio.Condition()
        self._open = True

    def join(self, other: LoopbackChannel) -> None:
        """Make two ends one channel."""
        self._other, other._other = other, self
        self._changed = other._changed

    async def send(self, frame: bytes) -> None:
        """Hand a frame to the other end; waits while its queue is full."""
        inbox = self._other._inbox
        async with self._changed:
            await self._changed.wait_for(lambda: not self._open or len(inbox) < QUEUE_FRAMES)
            self._check()
            inbox.append(frame)
            self._changed.notify_all()

    async def receive(self) -> bytes:
        """The next frame of the other end."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._open or self._inbox)
            self._check()
            self._changed.notify_all()
            return self._inbox.popleft()

    def narrow(self, most: int) -> None:
        """Nothing: this node does not protect itself from itself."""

    async def close(self) -> None:
        """End both ends."""
        async with self._changed:
            self._open = self._other._open = False
            self._changed.notify_all()

    def _check(self) -> None:
        if not self._open:
            raise ChannelClosed("the local channel is closed")


def loopback(own: NodeId) -> tuple[LoopbackChannel, LoopbackChannel]:
    """Both ends of a new channel from a node to itself."""
    near, far = LoopbackChannel(own), LoopbackChannel(own)
    near.join(far)
    return near, far
