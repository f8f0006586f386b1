"""What the listening port lets in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.adapters.websocket_transport import gate as gate_module
from diffuse_core.adapters.websocket_transport import listener as listener_module
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.domain.channel import Credentials
from diffuse_core.errors import ChannelClosed, Unreachable, UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel

from tests.adapters.websocket_transport.meeting import (
    BOB,
    TIMEOUT,
    alice,
    echo,
    listening,
    settled,
    until,
)


async def test_port_in_use() -> None:
    async with listening() as listener:
        port = int(listener.address.rpartition(":")[2])
        with pytest.raises(UsageError, match=f"port {port} is in use; choose another"):
            await alice().listen("127.0.0.1", port, echo)


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("no.such.invalid", 0, "no such host"),
        ("192.0.2.1", 0, "no address of this machine"),
        ("127.0.0.1", 70_000, "cannot listen"),
        ("é" * 70, 0, "no such host"),
    ],
)
async def test_what_cannot_be_bound(host: str, port: int, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        await alice().listen(host, port, echo)


async def test_ipv6() -> None:
    try:
        listener = await WebSocketTransport(BOB, "net").listen("::1", 0, echo)
    except UsageError:
        pytest.skip("no IPv6 here")
    assert listener.address.startswith("[::1]:")
    channel = await alice().dial(listener.address, BOB.node, TIMEOUT)
    assert channel.remote_address == listener.address
    await channel.close()
    await listener.close()


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "GET /x HTTP/1.1"])
async def test_a_browser_gets_a_short_answer(request_line: str) -> None:
    async with listening() as listener:
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{request_line}\r\nHost: x\r\n\r\n".encode())
        answer = (await asyncio.wait_for(reader.read(), 3)).decode()
        writer.close()
        assert "This is a Diffuse node" in answer
        assert "websockets" not in answer.lower().replace("upgrade: websocket", "")


async def test_a_web_page_cannot_connect() -> None:
    async with listening() as listener:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(
                f"ws://{listener.address}/", origin="http://evil.example", subprotocols=["diffuse"]
            )


async def test_garbage_and_floods_from_strangers_leave_the_listener_well() -> None:
    async with listening() as listener:
        host, _, port = listener.address.rpartition(":")
        for data in (b"\x00" * 1000 + b"\r\n", b"POST / HTTP/1.1\r\n\r\n", b"x" * 100_000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 3)
            writer.close()
        async with connect(f"ws://{listener.address}/", subprotocols=["diffuse"]) as stranger:
            await stranger.send(b"garbage")
            with pytest.raises(ConnectionClosed):
                await stranger.recv()
        async with connect(f"ws://{listener.address}/", subprotocols=["diffuse"]) as stranger:
            with contextlib.suppress(ConnectionClosed):
                await stranger.send(bytes(4 * 2**20))
            with pytest.raises(ConnectionClosed):
                await stranger.recv()
        channel = await alice().dial(listener.address, BOB.node, TIMEOUT)
        await channel.send(b"well")
        assert await channel.receive() == b"well"
        await channel.close()


async def test_strangers_that_stay_silent_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "OPEN_S", 0.1)
    async with listening() as listener:
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await asyncio.wait_for(reader.read(), 3) == b""
        writer.close()
        stranger = await connect(f"ws://{listener.address}/", subprotocols=["diffuse"])
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(stranger.recv(), 3)


async def small_listener(strangers: int, connections: int) -> WebSocketListener:
    credentials = Credentials(BOB, "net", b"\x07" * 32)
    listener = WebSocketListener(credentials, echo, strangers, connections)
    await listener.start("127.0.0.1", 0)
    return listener


async def hold(listener: WebSocketListener) -> socket.socket:
    """A raw connection that says nothing."""
    host, _, port = listener.address.rpartition(":")
    sock = socket.socket()
    sock.setblocking(False)
    before = len(listener._gate.strangers)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    await until(lambda: len(listener._gate.strangers) > before)
    return sock


async def test_strangers_are_bounded_and_old_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = await small_listener(strangers=2, connections=10)
    held = [await hold(listener) for _ in range(2)]
    with pytest.raises(Unreachable, match="busy"):
        await alice().dial(listener.address, None, TIMEOUT)
    assert len(listener._gate.strangers) == 2
    monkeypatch.setattr(gate_module, "PATIENCE_S", 0.0)
    channel = await alice().dial(listener.address, None, TIMEOUT)
    await channel.send(b"in")
    assert await channel.receive() == b"in"
    assert len(listener._gate.strangers) == 1
    assert len(listener._gate.proven) == 1
    await channel.close()
    await listener.close()
    for sock in held:
        sock.close()


async def test_connections_are_bounded_and_given_back() -> None:
    listener = await small_listener(strangers=2, connections=2)
    channels = [await alice().dial(listener.address, None, TIMEOUT) for _ in range(2)]
    late = await alice().dial(listener.address, None, TIMEOUT)
    with pytest.raises(ChannelClosed, match="broke off"):
        await late.receive()
    assert len(listener._gate.proven) == 2
    await channels[0].close()
    await until(lambda: len(listener._gate.proven) < 2)
    channels.append(await alice().dial(listener.address, None, TIMEOUT))
    for channel in channels:
        await channel.close()
    await listener.close()


async def test_closing_the_listener_ends_all_it_accepted() -> None:
    ended = []

    async def stay(channel: WebSocketChannel) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(channel)

    listener = await WebSocketTransport(BOB, "net").listen("127.0.0.1", 0, stay)
    channels = [await alice().dial(listener.address, None, TIMEOUT) for _ in range(3)]
    await until(lambda: len(listener._channels) == 3)
    held = await hold(listener)
    async with asyncio.timeout(10):
        await listener.close()
        await listener.close()
    assert len(ended) == 3
    for channel in channels:
        with pytest.raises(ChannelClosed, match="closed the channel"):
            await channel.receive()
        await channel.close()
    held.close()
    await settled()
    with pytest.raises(Unreachable, match="nothing listens"):
        await alice().dial(listener.address, None, TIMEOUT)


async def test_the_channel_ends_when_its_service_does(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(channel: WebSocketChannel) -> None:
        raise RuntimeError("a defect")

    async with listening(fail) as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        with pytest.raises(ChannelClosed, match="closed the channel"):
            await channel.receive()
        await channel.close()
    assert "serving the channel from" in caplog.text
