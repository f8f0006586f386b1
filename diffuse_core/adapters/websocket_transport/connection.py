"""What both ends of a connection have in common: limits, socket options, the handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

from websockets.typing import Subprotocol

from diffuse_core.adapters.websocket_transport.short_frames import ShortFrames
from diffuse_core.domain.sealed_stream import MAX_SEALED_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.asyncio.connection import Connection

    from diffuse_core.adapters.websocket_transport.unfinished import Unfinished
    from diffuse_core.domain.channel import FailureReason, Handshake

SUBPROTOCOL = Subprotocol("diffuse")
CLOSE_S = 2.0
MAX_UNPROVEN_BYTES = 512 * 1024
"""What a stranger may send: more than a handshake, since frames may come right behind it."""

REFUSED = 4000
CLOSE_CODES: dict[FailureReason, int] = {
    "network": 4001,
    "version": 4002,
    "keyed": 4003,
    "keyless": 4004,
    "key": 4005,
}
"""Told to the other end when a handshake fails (REFUSED for other reasons).

Not authenticated, so good for its error message and nothing else.
"""

_WHY: dict[int | None, str] = {
    CLOSE_CODES["network"]: "is on another network; give both nodes the same --network",
    CLOSE_CODES["version"]: "speaks another protocol version; update the older node",
    CLOSE_CODES["keyed"]: "is on a network with a key; give this node the same --network-key",
    CLOSE_CODES["keyless"]: (
        "has no network key and this node has one; give both the same --network-key"
    ),
    CLOSE_CODES["key"]: "has another network key; give both the same --network-key",
    REFUSED: "refused the handshake; something on the way may change the bytes",
}

QUIET = logging.getLogger("diffuse_core.websockets")
"""The library's own logger. Its debug lines would show frames, its info lines are noise."""
QUIET.setLevel(logging.WARNING)

# Probes by the kernel find a machine that vanished within half a minute, and, unlike pings, never
# take a busy process for a dead one. Names differ by system; what is lacking is left out.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPALIVE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}

OPTIONS: dict[str, Any] = {
    "compression": None,
    "ping_interval": None,
    "close_timeout": CLOSE_S,
    "max_size": MAX_SEALED_BYTES,
    # Frames may be large, so that few are read ahead of the application.
    "max_queue": 4,
    "logger": QUIET,
}
"""Arguments of both `serve` and `connect`."""


class _Ended(asyncio.Transport):
    """Stands for the transport of a connection that was lost.

    One of asyncio's fails when it is aborted after it closed and sent the rest of its buffer, and
    both the library and we may do so.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        super().__init__()
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


class StrangerLimit(ShortFrames):
    """Drops a connection that sends much before the other end is proven, or begins and stays."""

    def __init__(self, unfinished: Unfinished, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = unfinished
        self._proven = False
        self._seen = 0
        self._begun = False
        self._most = MAX_SEALED_BYTES
        # As websockets calls it from 16 on, and before.
        new = hasattr(self.protocol, "max_message_size")
        self._size_name, self._most_name = (
            ("current_size", "max_message_size") if new else ("cur_size", "max_size")
        )

    def data_received(self, data: bytes) -> None:
        """Count what arrives until the handshake is done, and then what is not yet complete."""
        if not self._proven:
            self._seen += len(data)
            if self._seen > MAX_UNPROVEN_BYTES:
                self.transport.abort()
                return
        elif not (data := self.take_now(data)):
            return
        super().data_received(data)
        self._count(len(data))

    def trust(self) -> None:
        """The other end is proven."""
        self._proven = True
        self._count(0)

    def narrow(self, most: int) -> None:
        """Take messages of at most `most` bytes; one under way may be too large already."""
        setattr(self.protocol, self._most_name, most)
        self._most = most
        self._count(0)

    def _count(self, arrived: int) -> None:
        if not self._proven:
            return
        held: int = len(self.protocol.reader.buffer)
        parts = getattr(self.protocol, self._size_name)
        if parts is not None:
            held += parts
        if not held and not self._begun:
            return
        # Whatever was not kept became part of a complete message.
        self._begun = held > 0
        if held > self._most:
            self.transport.abort()
            return
        self._unfinished.note(self, held, finished=held <= arrived)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the TCP connection is gone."""
        super().connection_lost(exc)
        self._proven = False
        self._unfinished.forget(self)
        self.transport = _Ended(self.transport)


def tune(connection: Connection) -> None:
    """Set the options of the connection's socket."""
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def prove(connection: StrangerLimit, handshake: Handshake) -> None:
    """Run the handshake to its end.

    Raises:
        HandshakeFailed: the other end is not who or what it must be.
        websockets.ConnectionClosed: it hung up.
    """
    await converse(handshake, connection.send, lambda: connection.recv(decode=False))
    connection.trust()


async def converse(
    handshake: Handshake,
    send: Callable[[bytes], Awaitable[None]],
    receive: Callable[[], Awaitable[bytes]],
) -> None:
    """Run the handshake to its end. Raises HandshakeFailed, and what `send` and `receive` do."""
    message = handshake.start()
    while True:
        if message is not None:
            await send(message)
        if handshake.done:
            return
        message = handshake.receive(await receive())


def why_refused(code: int | None) -> str:
    """What the other end's CLOSE_CODES or REFUSED means, to be read after its name."""
    return _WHY.get(code, "hung up during the handshake; try again")


def format_address(sockaddr: tuple[str, int]) -> str:
    """HOST:PORT of a socket's address, with brackets around IPv6."""
    host, port = sockaddr[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
