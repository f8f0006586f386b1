"""What answers at an address, and how that is said."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport import WebSocketTransport, sockets
from diffuse_core.domain.channel import Credentials
from diffuse_core.domain.messages import PROTOCOL_MAJOR
from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from diffuse_core.adapters.websocket_transport.listener import WebSocketListener

from tests.adapters.websocket_transport.meeting import (
    BOB,
    EVE,
    TIMEOUT,
    alice,
    listening,
    plain_listener,
    settled,
)


async def refusal(address: str, within: float = TIMEOUT) -> str:
    with pytest.raises(Unreachable) as caught:
        await alice().dial(address, None, within)
    await settled()
    return str(caught.value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_refused_connection() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert await refusal(address) == (
        f"nothing listens at {address}: start the node there, or check the address"
    )


async def test_silence() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with plain_listener(silent) as address:
        text = await refusal(address, within=0.1)
    assert f"no answer from {address} within 0.1 s" in text


async def test_html() -> None:
    async def html(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>")

    async with plain_listener(html) as address:
        text = await refusal(address)
    assert text == f"{address} answers HTTP 200, but is no Diffuse node; check the port"


@pytest.mark.parametrize("noise", [b"SSH-2.0-OpenSSH_9.6\r\n", bytes(range(256)) * 64, b"\n"])
async def test_other_protocols(noise: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(noise)
        await reader.read()

    async with plain_listener(talk) as address:
        assert "no Diffuse node" in await refusal(address)


async def test_a_listener_that_hangs_up() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with plain_listener(hang_up) as address:
        assert "hung up without an answer" in await refusal(address)


async def test_a_redirect_is_not_followed() -> None:
    visits = []

    async def target(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(writer)

    async with plain_listener(target) as elsewhere:

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: ws://{elsewhere}/\r\n\r\n".encode())

        async with plain_listener(redirect) as address:
            assert "no Diffuse node" in await refusal(address)
    assert visits == []


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    async with listening() as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        await channel.close()


async def test_another_websocket_service() -> None:
    async def chatter(connection: object) -> None:
        await connection.send("hello")

    async with serve(chatter, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "no Diffuse node" in await refusal(f"127.0.0.1:{port}")
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("first", [b"garbage", bytes(600), "text"])
async def test_a_service_that_only_pretends(first: bytes | str) -> None:
    async def pretend(connection: object) -> None:
        await connection.recv()
        await connection.send(first)
        await connection.wait_closed()

    async with serve(pretend, "127.0.0.1", 0, subprotocols=["diffuse"]) as server:
        port = server.sockets[0].getsockname()[1]
        text = await refusal(f"127.0.0.1:{port}")
        assert text.startswith(f"cannot use 127.0.0.1:{port}: ")
        server.close()
        await server.wait_closed()


async def test_a_listener_that_floods_a_dialler_is_dropped() -> None:
    async def flood(connection: object) -> None:
        with contextlib.suppress(ConnectionClosed):
            await connection.send(bytes(4 * 2**20))

    async with serve(flood, "127.0.0.1", 0, subprotocols=["diffuse"]) as server:
        port = server.sockets[0].getsockname()[1]
        assert "hung up during the handshake" in await refusal(f"127.0.0.1:{port}")
        server.close()
        await server.wait_closed()


async def test_unknown_host() -> None:
    assert "no host is called 'no.such.invalid'" in await refusal("no.such.invalid:9440")


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:", "host:0", "host:65536", "host:x", ":9440", "a b:1", "http://h:1",
     "u@h:1", "[::1]", "::1:9440", "h:1/path", "h" * 254 + ":1", "h:1\n"],
)  # fmt: skip
async def test_what_is_no_address(address: str) -> None:
    assert "is no address; write HOST:PORT" in await refusal(address)


async def test_another_id_answers() -> None:
    async with listening() as listener:
        with pytest.raises(Unreachable, match=EVE.node.hex()[:8]) as caught:
            await alice().dial(listener.address, EVE.node, TIMEOUT)
        assert BOB.node.hex()[:8] in str(caught.value)


async def test_dialling_oneself() -> None:
    async with listening() as listener:
        with pytest.raises(Unreachable, match="is this node itself"):
            await WebSocketTransport(BOB, "net").dial(listener.address, None, TIMEOUT)


async def test_another_network() -> None:
    async with listening(network="other") as listener:
        assert await refusal_within(listener) == (
            f"{listener.address} is on another network; give both nodes the same --network"
        )


async def test_another_protocol_version() -> None:
    async with listening() as listener:
        listener._credentials = Credentials(BOB, "net", bytes(range(32)), major=PROTOCOL_MAJOR + 1)
        assert "speaks another protocol version" in await refusal_within(listener)


async def refusal_within(listener: WebSocketListener) -> str:
    with pytest.raises(Unreachable) as caught:
        await alice().dial(listener.address, None, TIMEOUT)
    return str(caught.value)


async def test_cancelling_a_dial_leaves_nothing_behind() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with plain_listener(silent) as address:
        dialling = asyncio.create_task(alice().dial(address, None, TIMEOUT))
        for _ in range(20):
            await asyncio.sleep(0)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await settled()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.ENETUNREACH, "no way to a:1 from this machine"),
        (errno.EHOSTUNREACH, "no way to a:1 from this machine"),
        (errno.ETIMEDOUT, "no answer from a:1"),
        (errno.EMFILE, "cannot connect to a:1: "),
    ],
)
async def test_what_the_network_says(
    monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    async def fail(_: object) -> None:
        raise OSError(code, "reason")

    monkeypatch.setattr(sockets, "_connect", fail)
    with pytest.raises(Unreachable, match=text):
        await sockets.open_socket("127.0.0.1", 1, "a:1")


async def test_every_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(*_: object) -> list:
        return [
            socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)[0]
            for port in (free_port(), int(listener.address.rpartition(":")[2]))
        ]

    monkeypatch.setattr(sockets, "_resolve", two)
    async with listening() as listener:
        channel = await alice().dial(listener.address, BOB.node, TIMEOUT)
        await channel.close()
