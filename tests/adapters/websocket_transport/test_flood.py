"""Many strangers, and slow ones: bounded, and honest nodes get in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport import gate as gate_module
from diffuse_core.adapters.websocket_transport import listener as listener_module
from diffuse_core.adapters.websocket_transport.connection import OPTIONS
from diffuse_core.adapters.websocket_transport.gate import MAX_STRANGERS, is_local, origin_of
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.domain.channel import Credentials, Handshake
from diffuse_core.errors import Unreachable
from tests.adapters.websocket_transport.meeting import (
    ALICE,
    BOB,
    TIMEOUT,
    alice,
    echo,
    listening,
    plain_listener,
    settled,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def small_listener(strangers: int) -> AsyncIterator[WebSocketListener]:
    listener = WebSocketListener(Credentials(BOB, "net", b"\x07" * 32), echo, strangers, 100)
    await listener.start("0.0.0.0", 0)  # noqa: S104 - several loopback addresses are needed
    yield listener
    await listener.close()
    await settled()


async def silent_from(host: str, listener: WebSocketListener) -> socket.socket:
    """A raw connection from that address of this machine."""
    sock = socket.socket()
    sock.bind((host, 0))
    sock.setblocking(False)
    port = int(listener.address.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def test_a_crowd_of_one_machine_does_not_lock_others_out() -> None:
    async with small_listener(strangers=4) as listener:
        gate = listener._gate
        port = listener.address.rpartition(":")[2]
        crowd = [await silent_from("127.0.0.2", listener) for _ in range(4)]
        await until(lambda: len(gate.strangers) == 4)
        # Its own further connections are refused, those of another machine are let in at once.
        crowd.append(await silent_from("127.0.0.2", listener))
        assert await asyncio.get_running_loop().sock_recv(crowd[-1], 1) == b""
        channel = await alice().dial(f"127.0.0.1:{port}", BOB.node, TIMEOUT)
        await channel.send(b"in")
        assert await channel.receive() == b"in"
        assert len(gate.strangers) == 3
        await channel.close()
        for sock in crowd:
            sock.close()


async def test_where_no_machine_has_most_places_those_that_just_came_keep_theirs() -> None:
    async with small_listener(strangers=4) as listener:
        port = listener.address.rpartition(":")[2]
        held = [await silent_from(f"127.0.0.{2 + n // 2}", listener) for n in range(4)]
        await until(lambda: len(listener._gate.strangers) == 4)
        with pytest.raises(Unreachable, match="busy"):
            await alice().dial(f"127.0.0.1:{port}", BOB.node, TIMEOUT)
        assert len(listener._gate.strangers) == 4
        for sock in held:
            sock.close()


@pytest.mark.parametrize(
    ("sockaddr", "origin"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::1%eth0"),
        (None, ""),
    ],
)
def test_whom_a_connection_counts_for(sockaddr: tuple | None, origin: str) -> None:
    assert origin_of(sockaddr) == origin


@pytest.mark.parametrize(
    ("there", "here", "local"),
    [
        (("127.0.0.1", 5), ("127.0.0.1", 9440), True),
        (("::ffff:127.0.0.1", 5, 0, 0), ("::ffff:127.0.0.1", 9440, 0, 0), True),
        (("::1", 5, 0, 0), ("::1", 9440, 0, 0), True),
        (("192.168.1.5", 5), ("192.168.1.5", 9440), True),
        (("192.168.1.6", 5), ("192.168.1.5", 9440), False),
        (("fe80::1%eth0", 5, 0, 2), ("fe80::2%eth0", 9440, 0, 2), False),
        (None, ("127.0.0.1", 9440), False),
    ],
)
def test_what_counts_as_this_machine(there: tuple | None, here: tuple, local: bool) -> None:
    assert is_local(there, here) is local


async def half_open(listener: WebSocketListener) -> None:
    """Begin a handshake, get the other side to compute its answer, and stay."""
    handshake = Handshake(Credentials(ALICE, "net", b"\x05" * 32), "dialler", b"\x11" * 32)
    with contextlib.suppress(ConnectionClosed, OSError, EOFError):
        async with connect(
            f"ws://{listener.address}/", subprotocols=["diffuse"], **OPTIONS
        ) as stranger:
            await stranger.send(handshake.start())
            await stranger.recv()
            await stranger.wait_closed()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_flood_of_handshakes_takes_bounded_room_and_honest_nodes_get_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "PATIENCE_S", 0.1)
    most = 0
    async with listening() as listener:
        tracemalloc.start()
        flood = [asyncio.create_task(half_open(listener)) for _ in range(5 * MAX_STRANGERS)]
        got_in = 0
        async with asyncio.timeout(60):
            while got_in < 5:
                most = max(most, len(listener._gate.strangers))
                try:
                    channel = await alice().dial(listener.address, BOB.node, TIMEOUT)
                except Unreachable:
                    await asyncio.sleep(0.05)
                    continue
                await channel.send(b"in")
                assert await channel.receive() == b"in"
                await channel.close()
                got_in += 1
        assert most <= MAX_STRANGERS
        # Both ends of every connection are in this process.
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        tracemalloc.stop()
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


async def test_a_stranger_that_says_a_byte_now_and_then_runs_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is slow with its request or with its greeting."""
    monkeypatch.setattr(listener_module, "OPEN_S", 0.2)
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: diffuse\r\n\r\n"
    )
    async with listening() as listener:
        host, _, port = listener.address.rpartition(":")
        for first, rest in ((b"", upgrade), (upgrade, b"\x82\xfe\x00\x7e" + bytes(130))):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(first)
            start = asyncio.get_running_loop().time()
            with contextlib.suppress(ConnectionError):
                for byte in rest:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)
                    if reader.at_eof():
                        break
            assert asyncio.get_running_loop().time() - start < 2
            await until(lambda: not listener._gate.strangers)
            writer.close()


async def test_a_dialler_waits_no_longer_than_it_was_told_for_one_that_drips() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            for byte in b"HTTP/1.1 101 Switching Protocols\r\n" * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)

    async with plain_listener(drip) as address:
        start = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable, match=r"no answer from .* within 0\.2 s"):
            await alice().dial(address, BOB.node, 0.2)
        assert asyncio.get_running_loop().time() - start < 1
        await settled()
