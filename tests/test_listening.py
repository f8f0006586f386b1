"""Who comes in as a port closes is told, however far it has got."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING

import pytest

from diffuse_core.listening import stop_listening
from tests.adapters.http_server.asking import Seen, echo, serving
from tests.adapters.websocket_transport.meeting import alice, settled

if TYPE_CHECKING:
    from diffuse_core.ports import Channel

# Of the event loop: from a connection that the kernel took to one that a protocol knows of.
TURNS = range(6)


def connected(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setblocking(False)
    return peer


async def turn(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def assert_ended(peer: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with peer:
        try:
            async with asyncio.timeout(10):
                assert await loop.sock_recv(peer, 1) == b""
        except ConnectionResetError:
            pass  # It had not been accepted.
    # A socket that nobody closed would be told of here, and fail the test.
    gc.collect()


@pytest.mark.parametrize("turns", TURNS)
async def test_a_node_ends_a_connection_that_comes_as_it_stops(turns: int) -> None:
    async def nobody(_channel: Channel) -> None:
        raise AssertionError

    listener = await alice().listen("127.0.0.1", 0, nobody)
    peer = connected(int(listener.address.rpartition(":")[2]))
    await turn(turns)
    await listener.close()
    await settled()
    await assert_ended(peer)


@pytest.mark.parametrize("turns", TURNS)
async def test_an_http_server_ends_a_connection_that_comes_as_it_stops(turns: int) -> None:
    async with serving(echo(Seen())) as server:
        peer = connected(server.port)
        await turn(turns)
    await assert_ended(peer)


async def test_connections_stand_that_are_cut_by_nobody() -> None:
    made: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue(1)

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.put_nowait(transport)

    server = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
    with connected(server.sockets[0].getsockname()[1]):
        await turn(2)
        await stop_listening(server)
        await stop_listening(server)
        assert not server.is_serving()
        transport = made.get_nowait()
        assert not transport.is_closing()
        transport.abort()
    await turn(2)
