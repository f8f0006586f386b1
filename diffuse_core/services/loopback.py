"""A channel of a node to itself: a Client that also hosts is a Stage of its own Routes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

QUEUE_FRAMES = 256


class LoopbackChannel:
    """One end of an in-process channel; implements ports.Channel."""

    def __init__(self, own: NodeId) -> None:
        self.remote = own
        self.remote_address = "local"
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_FRAMES)
        self._other: LoopbackChannel = self
        self._open = True

    async def send(self, frame: bytes) -> None:
        """Hand a frame to the other end; waits while its queue is full."""
        if not self._open:
            raise ChannelClosed("the local channel is closed")
        await self._other._inbox.put(frame)

    async def receive(self) -> bytes:
        """The next frame of the other end."""
        frame = await self._inbox.get() if self._open else None
        if frame is None:
            raise ChannelClosed("the local channel is closed")
        return frame

    async def close(self) -> None:
        """End both ends."""
        for end in (self, self._other):
            if end._open:
                end._open = False
                if end._inbox.full():
                    end._inbox.get_nowait()
                end._inbox.put_nowait(None)


def loopback(own: NodeId) -> tuple[LoopbackChannel, LoopbackChannel]:
    """Both ends of a new channel from a node to itself."""
    near, far = LoopbackChannel(own), LoopbackChannel(own)
    near._other, far._other = far, near
    return near, far
