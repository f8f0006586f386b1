"""Real sockets on loopback: what connects, what is refused and how it is said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.adapters.websocket_transport import listener as listener_module
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.domain.channel import MAX_FRAME_BYTES, Credentials
from diffuse_core.domain.identity import Identity
from diffuse_core.errors import ChannelClosed, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel

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
    async with asyncio.timeout(3):
        while not condition():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0)


async def settled() -> None:
    """Wait until nothing but the test runs: leaks make this time out."""
    await until(lambda: len(asyncio.all_tasks()) == 1)


def alice(network: str = "net") -> WebSocketTransport:
    return WebSocketTransport(ALICE, network)


@pytest.mark.parametrize("prefix", ["", "ws://"])
async def test_frames_go_both_ways(prefix: str) -> None:
    async with listening() as listener:
        channel = await alice().dial(prefix + listener.address, BOB.node, TIMEOUT)
        assert channel.remote == BOB.node
        assert channel.remote_address == listener.address
        for frame in (b"", b"x", bytes(70_000), b"last"):
            await channel.send(frame)
            assert await channel.receive() == frame
        await channel.close()
        await channel.close()


async def test_the_largest_frame_passes_and_a_larger_one_does_not() -> None:
    async with listening() as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        with pytest.raises(ValueError, match="passes"):
            await channel.send(bytes(MAX_FRAME_BYTES + 1))
        frame = b"\x5a" * MAX_FRAME_BYTES
        await channel.send(frame)
        assert await channel.receive() == frame
        await channel.close()


async def test_the_listener_learns_who_dialled_and_from_where() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, BOB.node, TIMEOUT)
        far = await inbox.channels.get()
        assert far.remote == ALICE.node
        assert far.remote_address.startswith("127.0.0.1:")
        assert far.remote_address != listener.address
        await near.close()


async def test_an_orderly_end_and_a_broken_one_are_told_apart() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        first = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        await far.send(b"last words")
        await far.close()
        assert await first.receive() == b"last words"
        for _ in range(2):
            with pytest.raises(ChannelClosed, match="closed the channel"):
                await first.receive()
        await first.close()
        second = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        second._connection.transport.abort()
        with pytest.raises(ChannelClosed, match="broke off"):
            await far.receive()
        with pytest.raises(ChannelClosed, match="broke off"):
            await far.send(b"late")


async def test_the_side_that_closed_hears_so() -> None:
    async with listening() as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        await channel.close()
        for use in (channel.receive, lambda: channel.send(b"x")):
            with pytest.raises(ChannelClosed, match="this side closed"):
                await use()


async def test_a_changed_frame_ends_the_channel() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        wire = bytearray(near._stream.seal(b"frame"))
        wire[-1] ^= 1
        await near._connection.send(bytes(wire))
        with pytest.raises(ChannelClosed, match="misbehaved"):
            await far.receive()
        with pytest.raises(ChannelClosed):
            await near.receive()
        await near.close()


async def test_ten_senders_at_once_do_not_mix_their_frames() -> None:
    async with listening() as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        frames = [bytes([i]) * 100_000 for i in range(10)]
        sends = asyncio.gather(*(channel.send(frame) for frame in frames))
        got = [await channel.receive() for _ in frames]
        await sends
        assert sorted(got) == frames
        await channel.close()


async def test_a_cancelled_receive_loses_nothing() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        waiting = asyncio.create_task(near.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await far.send(b"still there")
        assert await near.receive() == b"still there"
        await near.close()


async def fill(channel: WebSocketChannel) -> None:
    while True:
        await channel.send(bytes(MAX_FRAME_BYTES))


async def test_a_slow_reader_ends_the_senders_wait() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        await inbox.channels.get()
        near._deadline = 0.2
        with pytest.raises(ChannelClosed, match=r"did not read for 0\.2 s"):
            await fill(near)
        await near.close()


async def test_closing_does_not_wait_for_a_side_that_never_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diffuse_core.adapters.websocket_transport.channel.CLOSE_S", 0.1)
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        await inbox.channels.get()
        filling = asyncio.create_task(fill(near))
        await until(lambda: near._connection.transport.get_write_buffer_size() > 0)
        async with asyncio.timeout(1):
            await near.close()
            with pytest.raises(ChannelClosed):
                await filling


# --- dialling what is no node, or not the right one ----------------------------------------


async def refusal(address: str, within: float = TIMEOUT) -> str:
    with pytest.raises(Unreachable) as caught:
        await alice().dial(address, None, within)
    await settled()
    return str(caught.value)


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_refused_connection() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert await refusal(address) == f"nothing listens at {address}; is the node running?"


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
        listener._credentials = Credentials(BOB, "net", bytes(range(32)), major=2)
        assert "speaks another protocol version" in await refusal_within(listener)


async def refusal_within(listener: WebSocketListener) -> str:
    with pytest.raises(Unreachable) as caught:
        await alice().dial(listener.address, None, TIMEOUT)
    return str(caught.value)


# --- the listening side ---------------------------------------------------------------------


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
    monkeypatch.setattr(listener_module, "PATIENCE_S", 0.0)
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
    with pytest.raises(Unreachable, match="busy"):
        await alice().dial(listener.address, None, TIMEOUT)
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
    async with asyncio.timeout(3):
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


async def test_payloads_never_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening() as listener:
        channel = await alice().dial(listener.address, None, TIMEOUT)
        await channel.send(b"a secret prompt")
        await channel.receive()
        await channel.close()
    assert not [r for r in caplog.records if r.name.startswith(("websockets", "diffuse_core"))]


async def test_sockets_send_small_frames_at_once_and_notice_dead_machines() -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        for end in (near, far):
            sock = end._connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await near.close()


async def test_wire_bytes_show_neither_ids_nor_frames() -> None:
    seen = bytearray()
    async with listening() as listener:

        async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = listener.address.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    seen.extend(unmask(data))
                    sink.write(data)
                sink.close()

            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

        async with plain_listener(tap) as address:
            channel = await alice().dial(address, BOB.node, TIMEOUT)
            await channel.send(b"a secret prompt")
            assert await channel.receive() == b"a secret prompt"
            await channel.close()
            await until(lambda: len(asyncio.all_tasks()) <= 3)
    for secret in (b"a secret prompt", ALICE.node, BOB.node):
        assert secret not in seen


def unmask(data: bytes) -> bytes:
    """Payload of one short masked frame; anything else as it is."""
    if len(data) > 8 and data[0] == 0x82 and data[1] & 0x80:
        offset = 4 if data[1] & 0x7F == 126 else 2
        mask = struct.pack("4s", data[offset : offset + 4])
        return bytes(b ^ mask[i % 4] for i, b in enumerate(data[offset + 4 :]))
    return data
