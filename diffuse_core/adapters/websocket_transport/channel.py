"""Channels straight over a WebSocket connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport.connection import CLOSE_S, format_address
from diffuse_core.adapters.websocket_transport.sealed_channel import SEND_DEADLINE_S, SealedChannel
from diffuse_core.domain.sealed_stream import sealed_size
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
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
        try:
            await self._connection.send(wire)
        except ConnectionClosed as error:
            raise ChannelClosed("the connection ended") from error

    async def receive(self) -> bytes:
        """The next message. Raises ChannelClosed."""
        try:
            return await self._connection.recv(decode=False)
        except ConnectionClosed as error:
            raise ChannelClosed("the connection ended") from error

    async def close(self) -> None:
        """Hang up, within CLOSE_S; idempotent."""
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

    def narrow(self, most: int) -> None:
        """Take smaller frames only (see ports.Channel.narrow)."""
        super().narrow(most)
        self._connection.narrow(sealed_size(most))

    async def _hang_up(self) -> None:
        self._direct.abort()
