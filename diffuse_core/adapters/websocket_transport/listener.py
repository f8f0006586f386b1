"""The listening port: who may come in, and the tasks that serve them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http
import logging
import secrets
from typing import TYPE_CHECKING, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel
from diffuse_core.adapters.websocket_transport.connection import (
    CLOSE_CODES,
    CLOSE_S,
    OPTIONS,
    REFUSED,
    SUBPROTOCOL,
    format_address,
    prove,
    tune,
)
from diffuse_core.adapters.websocket_transport.gate import (
    MAX_CONNECTIONS,
    MAX_STRANGERS,
    Gate,
    Inbound,
)
from diffuse_core.adapters.websocket_transport.unfinished import Unfinished
from diffuse_core.binding import bind_problem
from diffuse_core.domain.channel import Handshake, HandshakeFailed
from diffuse_core.errors import UsageError
from diffuse_core.listening import stop_listening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.http11 import Request, Response

    from diffuse_core.domain.channel import Credentials
    from diffuse_core.ports import Channel

log = logging.getLogger(__name__)

OPEN_S = 5.0
"""From the first byte to the proven identity."""

_GREETING = "This is a Diffuse node. Point diffuse at it with --bootstrap and this address.\n"


class WebSocketListener:
    """Implements ports.Listener."""

    def __init__(
        self,
        credentials: Credentials,
        accept: Callable[[Channel], Awaitable[None]],
        strangers: int = MAX_STRANGERS,
        connections: int = MAX_CONNECTIONS,
        unfinished: Unfinished | None = None,
    ) -> None:
        self._credentials = credentials
        self._accept = accept
        self._gate = Gate(strangers, connections)
        self._unfinished = unfinished or Unfinished()
        self._tasks: set[asyncio.Task[object]] = set()
        self._channels: set[WebSocketChannel] = set()
        self._server: Server | None = None
        self._closed = False
        self._address = ""

    @property
    def address(self) -> str:
        """HOST:PORT that is bound."""
        return self._address

    async def start(self, host: str, port: int) -> None:
        """Bind the port and start to accept.

        Raises:
            UsageError: the port or the host cannot be bound.
        """
        create = functools.partial(Inbound, self._gate, self._unfinished)
        try:
            self._server = await serve(
                self._handle,
                host,
                port,
                origins=[None],
                subprotocols=[SUBPROTOCOL],
                process_request=_answer_http,
                server_header=None,
                open_timeout=OPEN_S,
                create_connection=create,  # type: ignore[arg-type]
                **OPTIONS,
            )
        except (OSError, UnicodeError, OverflowError) as error:
            told = bind_problem(host, port, error, of_host="--listen", of_port="--listen")
            raise UsageError(told) from error
        self._address = format_address(self._server.sockets[0].getsockname())

    async def close(self) -> None:
        """Stop accepting, say farewell to every channel and end every task; idempotent."""
        if self._closed or self._server is None:
            return
        self._closed = True
        await stop_listening(self._server.server)
        self._server.close(close_connections=False)
        for stranger in tuple(self._gate.strangers):
            stranger.transport.abort()
        await asyncio.gather(*(channel.close() for channel in tuple(self._channels)))
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._server.wait_closed()

    async def _handle(self, connection: ServerConnection) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._tasks.add(task)
        try:
            channel = await self._open(cast("Inbound", connection))
            if channel is not None:
                await self._serve(channel)
        finally:
            self._tasks.discard(task)

    async def _serve(self, channel: WebSocketChannel) -> None:
        self._channels.add(channel)
        try:
            await self._accept(channel)
        except Exception:
            log.exception("serving the channel from %s failed", channel.remote_address)
        finally:
            await channel.close()
            self._channels.discard(channel)

    async def _open(self, connection: Inbound) -> WebSocketChannel | None:
        handshake = Handshake(self._credentials, "listener", secrets.token_bytes(32))
        try:
            tune(connection)
            async with asyncio.timeout_at(connection.opened_at + OPEN_S):
                await prove(connection, handshake)
        except HandshakeFailed as error:
            log.info("refused %s: %s", format_address(connection.remote_address), error)
            await connection.close(CLOSE_CODES.get(error.reason, REFUSED))
            return None
        except (TimeoutError, ConnectionClosed, OSError) as error:
            if isinstance(error, ConnectionClosed) and error.rcvd is not None:
                self._tell_why(connection, error.rcvd.code)
            connection.transport.abort()
            return None
        if not self._gate.admit(connection, handshake.remote):
            log.debug("no place for %s", format_address(connection.remote_address))
            connection.transport.abort()
            return None
        return WebSocketChannel(connection, handshake.session(), handshake.remote)

    def _tell_why(self, connection: Inbound, code: int) -> None:
        if code == CLOSE_CODES["key"]:
            address = format_address(connection.remote_address)
            log.info("refused %s: it has another network key", address)


def _answer_http(connection: ServerConnection, request: Request) -> Response | None:
    """Answer browsers and the curious in plain text, instead of with a protocol error."""
    if any("websocket" in value.lower() for value in request.headers.get_all("Upgrade")):
        return None
    return connection.respond(http.HTTPStatus.UPGRADE_REQUIRED, _GREETING)
