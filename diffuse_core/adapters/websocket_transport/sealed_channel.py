"""An open channel: sealed frames over whatever carries their wire messages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.adapters.websocket_transport.connection import CLOSE_S
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.sealed_stream import SealedStream
    from diffuse_core.ports import Carrier

SEND_DEADLINE_S = 20.0


class SealedChannel:
    """Implements ports.Channel. Safe for several senders, and for one receiver at a time."""

    def __init__(
        self,
        carrier: Carrier,
        stream: SealedStream,
        remote: NodeId,
        send_deadline: float = SEND_DEADLINE_S,
    ) -> None:
        self._carrier = carrier
        self._stream = stream
        self._remote = remote
        self._deadline = send_deadline
        self._most = MAX_FRAME_BYTES
        self._now = asyncio.get_running_loop().time
        self._order = asyncio.Lock()
        self._closing = False
        self._ending = ""
        self._next_is_open = False
        """What the carrier gives next was opened already: it is a frame."""

    @property
    def remote(self) -> NodeId:
        """The proven id of the other end."""
        return self._remote

    @property
    def remote_address(self) -> str:
        """HOST:PORT the bytes come from."""
        return self._carrier.remote_address

    @property
    def relayed_through(self) -> NodeId | None:
        """The Sentinel that carries the bytes; None for a direct channel."""
        return self._carrier.relayed_through

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
                await self._pass_on(self._stream.seal(frame, self._now()))
        except TimeoutError as error:
            raise await self._break(f"did not read for {self._deadline:g} s") from error

    async def receive(self) -> bytes:
        """The next frame. Raises ChannelClosed."""
        try:
            wire = await self._carrier.receive()
        except ChannelClosed as error:
            raise await self._break("broke off") from error
        if self._next_is_open:
            self._next_is_open = False
            return wire
        try:
            frame = self._stream.open(wire)
        except ChannelClosed as error:
            raise await self._break(f"misbehaved: {error}") from error
        if frame is None:
            self._ending = self._ending or "closed the channel"
            raise self._closed()
        if len(frame) > self._most:
            raise await self._break(f"misbehaved: it sent more than {self._most} bytes at once")
        return frame

    def narrow(self, most: int) -> None:
        """Take smaller frames only (see ports.Channel.narrow)."""
        self._most = most

    async def close(self) -> None:
        """Say farewell and hang up, within CLOSE_S and what the carrier takes; idempotent."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._say_farewell()
        except (TimeoutError, asyncio.CancelledError) as error:
            await self._hang_up()
            if isinstance(error, asyncio.CancelledError):
                raise
        await self._carrier.close()

    async def _say_farewell(self) -> None:
        if self._ending:
            return
        self._ending = "is no longer connected: this side closed the channel"
        with contextlib.suppress(ChannelClosed):
            # In its turn: it may not come between the parts of a frame.
            async with asyncio.timeout(CLOSE_S), self._order:
                await self._carrier.send(self._stream.close())

    async def _pass_on(self, wire: bytes) -> None:
        try:
            await self._carrier.send(wire)
        except ChannelClosed as error:
            raise await self._break("broke off") from error

    async def _break(self, what: str) -> ChannelClosed:
        # The first cause is what every later call tells.
        self._ending = self._ending or what
        await self._hang_up()
        return self._closed()

    async def _hang_up(self) -> None:
        await self._carrier.close()

    def _closed(self) -> ChannelClosed:
        return ChannelClosed(
            f"node {short_text(self._remote)} at {self.remote_address} {self._ending}"
        )
