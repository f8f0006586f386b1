"""Runs an ASGI app with uvicorn's protocol inside our event loop, signals and logging."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from uvicorn.config import Config
from uvicorn.server import ServerState

from diffuse_core.adapters.http_server.limits import HttpLimits
from diffuse_core.adapters.http_server.protocol import BoundedProtocol
from diffuse_core.adapters.http_server.refusal import log_defect, plain
from diffuse_core.binding import bind_problem
from diffuse_core.errors import UsageError
from diffuse_core.listening import stop_listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

    from diffuse_core.adapters.http_server.refusal import Render

log = logging.getLogger(__name__)

BACKLOG = 128
CUT_S = 2.0
"""For requests that were cancelled, and for what they still sent to leave."""


class HttpServer:
    """A server that listens, until whoever opened it leaves its context."""

    def __init__(self, listener: asyncio.Server, state: ServerState, limits: HttpLimits) -> None:
        self._listener = listener
        self._state = state
        self._limits = limits
        host, port = listener.sockets[0].getsockname()[:2]
        self.port: int = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._state.connections)

    async def watch(self) -> None:
        """End connections that are over their deadlines; until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.look_s)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        # A call of its own: the last one would be kept for as long as `watch` sleeps.
        for connection in self._bounded():
            try:
                connection.look(now)
            except Exception as error:  # noqa: BLE001  (or nobody had deadlines any more)
                log_defect("a connection", error)
                connection.transport.abort()

    def _bounded(self) -> list[BoundedProtocol]:
        return [one for one in self._state.connections if isinstance(one, BoundedProtocol)]

    async def finish(self) -> None:
        """Take nothing new, and give what is being answered its time."""
        await stop_listening(self._listener)
        for connection in self._bounded():
            connection.shutdown()
        if tasks := set(self._state.tasks):
            await asyncio.wait(tasks, timeout=self._limits.grace_s)

    async def cut(self) -> None:
        """End everything that is left."""
        await stop_listening(self._listener)
        tasks = set(self._state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            log.info("answers that were still being given and were cut: %d", len(tasks))
            await asyncio.wait(tasks, timeout=CUT_S)
        for connection in self._bounded():
            connection.shutdown()
        loop = asyncio.get_running_loop()
        until = loop.time() + CUT_S
        while self._state.connections and loop.time() < until:  # noqa: ASYNC110  (uvicorn's set)
            await asyncio.sleep(0.01)
        for connection in self._bounded():
            connection.transport.abort()


@contextlib.asynccontextmanager
async def serve_http(
    app: ASGIApp,
    host: str,
    port: int,
    limits: HttpLimits | None = None,
    render: Render = plain,
) -> AsyncIterator[HttpServer]:
    """Serve `app` over HTTP/1.1 until the context ends.

    Then nothing new is taken and answers that are being given get `limits.grace_s`; none where
    the context ends by a cancellation or an error. Neither signal handlers nor log handlers are
    installed, and nothing that clients send is logged.

    Args:
        app: what answers.
        host: a name or address of this machine.
        port: 0 takes any that is free.
        limits: what the server takes on.
        render: the shape of refusals that the server itself gives.

    Raises:
        UsageError: the port is in use or may not be bound, or the host is not of this machine.
    """
    bounds = limits or HttpLimits()
    loop = asyncio.get_running_loop()
    state = ServerState()
    config = _configured(app, bounds)
    try:
        listener = await loop.create_server(
            lambda: BoundedProtocol(config, state, bounds, render, loop),
            host,
            port,
            backlog=BACKLOG,
        )
    except (OSError, UnicodeError, OverflowError) as error:
        told = bind_problem(
            host, port, error, of_host="--host", of_port="--port", what="serve HTTP"
        )
        raise UsageError(told) from error
    server = HttpServer(listener, state, bounds)
    watching = asyncio.create_task(server.watch(), name="http:watch")
    try:
        yield server
        await server.finish()
    finally:
        try:
            await server.cut()
        finally:
            watching.cancel()
            await asyncio.wait([watching], timeout=CUT_S)


def _configured(app: ASGIApp, limits: HttpLimits) -> Config:
    config = Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # Below this level it logs whole requests.
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        workers=1,
        h11_max_incomplete_event_size=limits.head_bytes,
    )
    config.load()
    return config
