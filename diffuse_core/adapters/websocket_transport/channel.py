"""Channels straight over a WebSocket connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport.connection import CLOSE_S, format_address
from diffuse_core.adapters.websocket_transport.sealed_channel import SEND_DEADLINE_S, SealedChannel
from diffuse_core.domain.sealed_stream import FAREWELL_BYTES, sealed_size
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.adapters.websocket_transport.connection import StrangerLimit
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.sealed_stream import SealedStream


class WebSocketCarrier:
    """Implements ports.Carrier; nobody is in the middle."""

    relayed_through: NodeId | None = None

    def __init__(self, connection: StrangerLimit) -> None:
        self._connection = connection
        self.remote_address = format_address(connection.remote_address)

    async def send(self, wire: bytes) -> None:
        """Send one message. Raises ChannelClosed."""
        self._connection.flush()
        try:
            await self._connection.send(wire)
        except ConnectionClosed as error:
            raise ChannelClosed("the connection ended") from error

    async def receive(self) -> bytes:
        """The next message. Raises ChannelClosed."""
        try:
            return await self._connection.next_message()
        except ConnectionClosed as error:
            raise ChannelClosed("the connection ended") from error

    async def close(self) -> None:
        """Hang up, within CLOSE_S; idempotent."""
        self._connection.flush()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        except (TimeoutError, ConnectionClosed):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Hang up at once."""
        self._connection.transport.abort()


class WebSocketChannel(SealedChannel):
    """A direct channel."""

    def __init__(
        self,
        connection: StrangerLimit,
        stream: SealedStream,
        remote: NodeId,
        send_deadline: float = SEND_DEADLINE_S,
    ) -> None:
        self._direct = WebSocketCarrier(connection)
        self._connection = connection
        super().__init__(self._direct, stream, remote, send_deadline)
        self._take: Callable[[bytes], bool] | None = None
        connection.hear(self._heard)

    def narrow(self, most: int) -> None:
        """Take smaller frames only (see ports.Channel.narrow)."""
        super().narrow(most)
        self._connection.narrow(sealed_size(most))

    def hear(self, take: Callable[[bytes], bool]) -> None:
        """Offer frames to `take` before `receive` gives them (see ports.Channel.hear)."""
        self._take = take

    def _heard(self, wire: bytes) -> bytes | None:
        """Open a wire message at once, and have it taken."""
        # A farewell is all that is so short; `receive` knows what to do about it.
        if self._take is None or len(wire) <= FAREWELL_BYTES:
            return wire
        try:
            frame = self._stream.open(wire)
        except ChannelClosed as error:
            self._give_up(f"misbehaved: {error}")
            return None
        if frame is None or len(frame) > self._most:
            self._give_up(f"misbehaved: it sent more than {self._most} bytes at once")
            return None
        if self._take(frame):
            return None
        self._next_is_open = True
        return frame

    def _give_up(self, why: str) -> None:
        self._ending = self._ending or why
        self._direct.abort()

    async def send(self, frame: bytes) -> None:
        """Send one frame (see ports.Channel.send)."""
        # Without a deadline and a turn where nobody is before it and nothing can make it wait.
        if self.idle(len(frame)):
            self.send_now(frame)
        else:
            await super().send(frame)

    def idle(self, size: int) -> bool:
        """Whether a frame of so many bytes can be sent now, without waiting."""
        return not self._ending and not self._order.locked() and self._connection.idle(size)

    def send_now(self, frame: bytes, *, soon: bool = False) -> None:
        """Send a frame while `idle`; `soon`: with others, at the end of this turn of the loop."""
        self._connection.send_now(self._stream.seal(frame, self._now()), soon=soon)

    async def _hang_up(self) -> None:
        self._direct.abort()
