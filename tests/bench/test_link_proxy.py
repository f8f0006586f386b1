"""The proxy over real sockets. Times are only asked to be long enough, never to be short."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.bench.link_process import proxy_process
from tests.bench.link_proxy import ANYBODY, CLIENT, PLACE, WINDOW, LinkProxy, owner_of
from tests.bench.link_shape import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds out by /proc who dials")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def echoing(proxy: LinkProxy, name: str = "a") -> AsyncIterator[int]:
    """A node that says what it hears; its port at the proxy."""
    server = await asyncio.start_server(echo, PLACE, 0)
    try:
        port = await proxy.open(name)
        # Nobody's process id: whoever dials is the client.
        proxy.lead(name, server.sockets[0].getsockname()[1], 0)
        yield port
    finally:
        await proxy.close()
        server.close()


async def dialled(port: int) -> Streams:
    return await asyncio.open_connection(PLACE, port)


async def said(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    return await reader.readexactly(len(data))


async def ended(streams: Streams) -> None:
    """Wait until the other side ended a connection."""
    reader, writer = streams
    try:
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    except ConnectionError:
        writer.close()


async def left(streams: Streams) -> None:
    streams[1].close()
    await streams[1].wait_closed()


async def test_what_is_said_arrives_whole_and_is_counted() -> None:
    proxy = LinkProxy(1)
    async with echoing(proxy) as port:
        streams = await dialled(port)
        data = os.urandom(3 * WINDOW)
        assert await said(streams, data) == data
        assert proxy.counts() == {"client>a": len(data), "a>client": len(data)}
        await left(streams)


async def test_a_delay_counts_both_ways_and_for_the_handshake() -> None:
    proxy = LinkProxy(1)
    proxy.shape(CLIENT, "a", Shape(delay_s=0.03))
    async with echoing(proxy) as port:
        loop = asyncio.get_running_loop()
        streams = await dialled(port)
        began = loop.time()
        assert await said(streams, b"hello") == b"hello"
        assert loop.time() - began >= 4 * 0.03 - 0.005
        began = loop.time()
        assert await said(streams, b"again") == b"again"
        assert loop.time() - began >= 2 * 0.03
        await left(streams)


async def test_the_last_rule_for_a_link_counts_also_while_it_stands() -> None:
    proxy = LinkProxy(1)
    async with echoing(proxy) as port:
        streams = await dialled(port)
        proxy.shape(ANYBODY, ANYBODY, Shape(delay_s=60.0))
        proxy.shape("b", ANYBODY, Shape(delay_s=60.0))
        proxy.shape(CLIENT, ANYBODY, Shape())
        assert await said(streams, b"quick") == b"quick"
        await left(streams)


async def test_a_cut_link_ends_and_is_refused_until_it_is_mended() -> None:
    proxy = LinkProxy(1)
    async with echoing(proxy) as port:
        streams = await dialled(port)
        assert await said(streams, b"one") == b"one"
        proxy.set_state("a", ANYBODY, "cut")
        await ended(streams)
        await ended(await dialled(port))
        proxy.set_state("a", ANYBODY, "up")
        streams = await dialled(port)
        assert await said(streams, b"two") == b"two"
        await left(streams)


async def test_a_swallowed_link_stays_silent_and_goes_on_where_it_was() -> None:
    proxy = LinkProxy(1)
    async with echoing(proxy) as port:
        old = await dialled(port)
        assert await said(old, b"one") == b"one"
        proxy.set_state("a", CLIENT, "swallowed")
        new = await dialled(port)
        for _, writer in (old, new):
            writer.write(b"two")
        heard = [asyncio.create_task(reader.readexactly(3)) for reader, _ in (old, new)]
        assert not (await asyncio.wait(heard, timeout=0.05))[0]
        proxy.set_state("a", CLIENT, "up")
        assert await asyncio.gather(*heard) == [b"two", b"two"]
        await left(old)
        await left(new)


async def test_who_hangs_up_is_followed_and_so_is_a_node_that_is_not_there() -> None:
    proxy = LinkProxy(1)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), PLACE, 0)
    port = await proxy.open("a")
    await ended(await dialled(port))
    proxy.lead("a", server.sockets[0].getsockname()[1], 0)
    await ended(await dialled(port))
    server.close()
    await server.wait_closed()
    await ended(await dialled(port))
    await proxy.close()


async def test_who_dials_is_told_by_its_process() -> None:
    proxy = LinkProxy(1)
    async with echoing(proxy) as port:
        proxy.lead("me", 1, os.getpid())
        streams = await dialled(port)
        assert await said(streams, b"hello") == b"hello"
        assert proxy.counts() == {"me>a": 5, "a>me": 5}
        own = streams[1].get_extra_info("sockname")[1]
        assert owner_of(own, {"other": 1, "me": os.getpid()}) == "me"
        assert owner_of(own, {}) == CLIENT
        await left(streams)


async def test_as_a_process_it_does_the_same() -> None:
    server = await asyncio.start_server(echo, PLACE, 0)
    async with proxy_process(1) as proxy:
        port = await proxy.open("a")
        await proxy.lead("a", server.sockets[0].getsockname()[1], 0)
        await proxy.shape(CLIENT, ANYBODY, Shape(delay_s=0.01))
        streams = await dialled(port)
        assert await said(streams, b"hello") == b"hello"
        assert await proxy.counts() == {"client>a": 5, "a>client": 5}
        await proxy.set_state("a", ANYBODY, "cut")
        await ended(streams)
    server.close()
