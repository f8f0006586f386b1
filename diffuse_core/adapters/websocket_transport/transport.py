"""Dialling, listening and securing: implements ports.Transport."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from typing import TYPE_CHECKING, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus
from websockets.exceptions import WebSocketException as WebSocketError

from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel
from diffuse_core.adapters.websocket_transport.connection import (
    CLOSE_CODES,
    CLOSE_S,
    OPTIONS,
    SUBPROTOCOL,
    StrangerLimit,
    prove,
    tune,
    why_refused,
)
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.adapters.websocket_transport.securing import secure
from diffuse_core.adapters.websocket_transport.sockets import open_socket, split_address
from diffuse_core.adapters.websocket_transport.unfinished import Unfinished
from diffuse_core.domain.channel import Credentials, Handshake, HandshakeFailed
from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.domain.channel import Role
    from diffuse_core.domain.identity import Identity, NodeId
    from diffuse_core.ports import Carrier, Channel


_STRANGE = "answers, but is no Diffuse node; check the port"


class _Outbound(StrangerLimit, ClientConnection):
    """A dialled connection."""


class WebSocketTransport:
    """Makes channels that prove `identity` on `network`; its static key lives as long as it."""

    def __init__(self, identity: Identity, network: str, key: bytes | None = None) -> None:
        """Make the keys; `key` is that of a private network (see network_key.derive_key).

        Raises:
            ValueError: the network's name is empty or longer than 64 bytes.
        """
        self._credentials = Credentials(identity, network, secrets.token_bytes(32), key=key)
        self._unfinished = Unfinished()

    async def dial(
        self,
        address: str,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
    ) -> Channel:
        """Open a channel to HOST:PORT (see ports.Transport.dial)."""
        handshake = Handshake(self._credentials, "dialler", secrets.token_bytes(32), expected)
        try:
            async with asyncio.timeout(timeout):
                connection = await _connect(address, self._unfinished)
                await _prove(address, connection, handshake)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer from {address} within {timeout:g} s; check the address, firewalls "
                "and that the node runs"
            ) from error
        return WebSocketChannel(connection, handshake.session(), handshake.remote)

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> WebSocketListener:
        """Accept channels on a port (see ports.Transport.listen)."""
        listener = WebSocketListener(self._credentials, accept, unfinished=self._unfinished)
        await listener.start(host, port)
        return listener

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
        *,
        dialled: bool,
    ) -> Channel:
        """Make a channel over a carrier (see ports.Transport.secure)."""
        role: Role = "dialler" if dialled else "listener"
        ephemeral = secrets.token_bytes(32)
        handshake = Handshake(self._credentials, role, ephemeral, expected, "relayed")
        return await secure(carrier, handshake, timeout)


async def _connect(address: str, unfinished: Unfinished) -> _Outbound:
    host, port = split_address(address)
    sock = await open_socket(host, port, address)
    authority = f"[{host}]" if ":" in host else host
    try:
        # With a socket given, the library follows no redirect to elsewhere.
        connection = await connect(
            f"ws://{authority}:{port}/",
            sock=sock,
            proxy=None,
            subprotocols=[SUBPROTOCOL],
            user_agent_header=None,
            open_timeout=None,
            create_connection=functools.partial(_Outbound, unfinished),  # type: ignore[arg-type]
            **OPTIONS,
        )
    except (WebSocketError, ValueError, OSError, EOFError) as error:
        raise Unreachable(f"{address} {_what_answered(error)}") from error
    except BaseException:
        sock.close()
        raise
    if connection.subprotocol != SUBPROTOCOL:
        connection.transport.abort()
        raise Unreachable(f"{address} {_STRANGE}")
    return cast("_Outbound", connection)


async def _prove(address: str, connection: _Outbound, handshake: Handshake) -> None:
    try:
        tune(connection)
        await prove(connection, handshake)
    except BaseException as error:
        try:
            if isinstance(error, HandshakeFailed) and error.reason == "key":
                await _tell_key_differs(connection)
        finally:
            connection.transport.abort()
        if isinstance(error, HandshakeFailed):
            raise Unreachable(f"cannot use {address}: {error}") from error
        if isinstance(error, ConnectionClosed | OSError):
            code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else None
            raise Unreachable(f"{address} {why_refused(code)}") from error
        raise


async def _tell_key_differs(connection: _Outbound) -> None:
    """Only the dialler can see that the keys differ; the listener's owner wants to know, too."""
    with contextlib.suppress(TimeoutError, ConnectionClosed, OSError):
        async with asyncio.timeout(CLOSE_S):
            await connection.close(CLOSE_CODES["key"])


def _what_answered(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return f"answers HTTP {status}, but is no Diffuse node; check the port"
    gone = isinstance(error, OSError | EOFError) or (
        isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
    )
    if gone:
        return "hung up without an answer; it is busy, or no Diffuse node"
    return _STRANGE
