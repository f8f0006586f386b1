"""An open channel: sealed frames over a WebSocket connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport.connection import CLOSE_S, format_address
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection

    from diffuse_core.domain.sealed_stream import SealedStream

SEND_DEADLINE_S = 20.0


class WebSocketChannel:
    """Implements ports.Channel. Safe for several senders, and for one receiver at a time."""

    def __init__(
        self,
        connection: Connection,
        stream: SealedStream,
        remote: NodeId,
        send_deadline: float = SEND_DEADLINE_S,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._remote = remote
        self._address = format_address(connection.remote_address)
        self._deadline = send_deadline
        self._order = asyncio.Lock()
        self._closing = False
        self._ending = ""

    @property
    def remote(self) -> NodeId:
        """The proven id of the other end."""
        return self._remote

    @property
    def remote_address(self) -> str:
        """HOST:PORT the bytes come from."""
        return self._address

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the other end does not read.

        Raises:
            ChannelClosed: it ended, or the frame was not taken within the deadline.
            ValueError: the frame passes MAX_FRAME_BYTES.
        """
        try:
            # The lock keeps a second frame from being buffered while the first one waits.
            async with asyncio.timeout(self._deadline), self._order:
                if self._ending:
                    raise self._closed()
                await self._connection.send(self._stream.seal(frame))
        except TimeoutError as error:
            raise self._break(f"did not read for {self._deadline:g} s") from error
        except ConnectionClosed as error:
            raise self._break("broke off") from error

    async def receive(self) -> bytes:
        """The next frame. Raises ChannelClosed."""
        try:
            wire = await self._connection.recv(decode=False)
        except ConnectionClosed as error:
            raise self._break("broke off") from error
        try:
            frame = self._stream.open(wire)
        except ChannelClosed as error:
            raise self._break(f"misbehaved: {error}") from error
        if frame is None:
            self._ending = self._ending or "closed the channel"
            raise self._closed()
        return frame

    async def close(self) -> None:
        """Say farewell and hang up, within CLOSE_S; idempotent."""
        if self._closing:
            return
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_S):
                if not self._ending:
                    self._ending = "is no longer connected: this side closed the channel"
                    await self._connection.send(self._stream.close())
                await self._connection.close()
        except (TimeoutError, ConnectionClosed):
            pass
        finally:
            self._connection.transport.abort()

    def _break(self, what: str) -> ChannelClosed:
        # The first cause is what every later call tells.
        self._ending = self._ending or what
        self._connection.transport.abort()
        return self._closed()

    def _closed(self) -> ChannelClosed:
        return ChannelClosed(f"node {short_text(self._remote)} at {self._address} {self._ending}")
