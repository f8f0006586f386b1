"""What a sentinel handles, kept: the bytes of its sockets, and its frames as it reads them.

Bytes from the dialling end of a WebSocket are masked with four bytes that repeat. The exclusive
or of bytes that lie four apart does not depend on them, so that is what is searched.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.listening import stop_listening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Carrier, Channel, Listener, Transport

MASK_BYTES = 4
LEAST_BYTES = 10
"""Of what is looked for: less could be there by chance."""
READ_BYTES = 2**16


@dataclass
class Tape:
    """Streams of bytes, each in its order."""

    streams: list[bytearray] = field(default_factory=list)

    def stream(self) -> bytearray:
        """A new stream to add to."""
        self.streams.append(bytearray())
        return self.streams[-1]

    @property
    def size(self) -> int:
        """Bytes on it."""
        return sum(map(len, self.streams))

    def holds(self, needle: bytes) -> bool:
        """Whether the bytes are on it, as they are or masked."""
        assert len(needle) >= LEAST_BYTES, needle
        wanted = unmasked(needle)
        # Bytes that repeat every fourth would be found in any row of equal ones.
        assert any(wanted), needle
        return any(needle in stream or wanted in unmasked(stream) for stream in self.streams)

    def found(self, needles: dict[str, bytes]) -> set[str]:
        """The names of those that are on it."""
        return {name for name, needle in needles.items() if self.holds(needle)}


def unmasked(data: bytes | bytearray) -> bytes:
    """What is left of masked bytes whatever the mask is: four bytes less."""
    row = np.frombuffer(bytes(data), np.uint8)
    return (row[MASK_BYTES:] ^ row[:-MASK_BYTES]).tobytes()


class RecordedChannel:
    """A channel whose frames are kept, as whoever uses it sends and gets them."""

    def __init__(self, channel: Channel, tape: Tape) -> None:
        self._channel = channel
        self._sent = tape.stream()
        self._received = tape.stream()

    @property
    def remote(self) -> NodeId:
        return self._channel.remote

    @property
    def remote_address(self) -> str:
        return self._channel.remote_address

    @property
    def relayed_through(self) -> NodeId | None:
        return self._channel.relayed_through

    async def send(self, frame: bytes) -> None:
        self._sent += frame
        await self._channel.send(frame)

    async def receive(self) -> bytes:
        frame = await self._channel.receive()
        self._received += frame
        return frame

    def narrow(self, most: int) -> None:
        self._channel.narrow(most)

    async def close(self) -> None:
        await self._channel.close()


class RecordedTransport:
    """Keeps the frames of channels it makes: of all direct ones, or of all relayed ones."""

    def __init__(
        self, transport: Transport, *, direct: Tape | None = None, relayed: Tape | None = None
    ) -> None:
        self._transport = transport
        self._direct = direct
        self._relayed = relayed

    async def dial(self, address: str, expected: NodeId | None, timeout: float) -> Channel:  # noqa: ASYNC109
        return _kept(await self._transport.dial(address, expected, timeout), self._direct)

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> Listener:
        async def kept(channel: Channel) -> None:
            await accept(_kept(channel, self._direct))

        return await self._transport.listen(host, port, kept)

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109
        *,
        dialled: bool,
    ) -> Channel:
        channel = await self._transport.secure(carrier, expected, timeout, dialled=dialled)
        return _kept(channel, self._relayed)


def _kept(channel: Channel, tape: Tape | None) -> Channel:
    return channel if tape is None else RecordedChannel(channel, tape)


class RecordingProxy:
    """A TCP port that passes on to another, and keeps what passes. Use as an async context."""

    def __init__(self, tape: Tape) -> None:
        self.address = ""
        self._tape = tape
        self._target = ("", 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> RecordingProxy:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def lead_to(self, address: str) -> None:
        """Pass on to HOST:PORT from now on."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there, onward = await asyncio.open_connection(*self._target)
        ways = ((reader, onward), (there, writer))
        passing = [asyncio.create_task(self._pass(*way, self._tape.stream())) for way in ways]
        try:
            await asyncio.wait(passing)
        finally:
            for way in passing:
                way.cancel()
            await close_all(writer, onward)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                kept += data
                writer.write(data)
                await writer.drain()
            writer.write_eof()


async def close_all(*writers: asyncio.StreamWriter) -> None:
    """Close connections without waiting for what was not taken."""
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
