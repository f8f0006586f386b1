"""Two nodes that meet on loopback, and listeners that are no nodes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel
    from diffuse_core.adapters.websocket_transport.listener import WebSocketListener


ALICE, BOB, EVE = (Identity(bytes([i]) * 32) for i in (1, 2, 3))
TIMEOUT = 5.0


async def echo(channel: WebSocketChannel) -> None:
    with contextlib.suppress(ChannelClosed):
        while True:
            await channel.send(await channel.receive())


class Inbox:
    """Keeps accepted channels open until the test ends them."""

    def __init__(self) -> None:
        self.channels: asyncio.Queue[WebSocketChannel] = asyncio.Queue()

    async def __call__(self, channel: WebSocketChannel) -> None:
        self.channels.put_nowait(channel)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def listening(
    accept: Callable[[WebSocketChannel], Awaitable[None]] = echo, network: str = "net"
) -> AsyncIterator[WebSocketListener]:
    listener = await WebSocketTransport(BOB, network).listen("127.0.0.1", 0, accept)
    try:
        yield listener
    finally:
        await listener.close()
        await settled()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0)


async def settled() -> None:
    """Wait until nothing but the test runs: leaks make this time out."""
    await until(lambda: len(asyncio.all_tasks()) == 1)


def alice(network: str = "net") -> WebSocketTransport:
    return WebSocketTransport(ALICE, network)


@contextlib.asynccontextmanager
async def plain_listener(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
