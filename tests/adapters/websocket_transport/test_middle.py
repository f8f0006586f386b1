"""Over real sockets: who answers in another's place, what is played again, what is stripped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.adapters.websocket_transport.connection import OPTIONS
from diffuse_core.domain.channel import Credentials, Handshake, HandshakeFailed
from diffuse_core.domain.noise import XX
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.adapters.websocket_transport.meeting import (
    ALICE,
    BOB,
    EVE,
    TIMEOUT,
    Inbox,
    alice,
    listening,
    plain_listener,
    settled,
)
from tests.adapters.websocket_transport.tampering import nothing_unhandled, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from websockets.asyncio.connection import Connection

    from diffuse_core.adapters.websocket_transport.listener import WebSocketListener

OPEN = {"subprotocols": ["diffuse"], **OPTIONS}
EVES = Credentials(EVE, "net", b"\x33" * 32)


@contextlib.asynccontextmanager
async def answering(handler: Callable[[Connection], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of somebody who speaks WebSocket as nodes do."""

    async def handle(connection: Connection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await handler(connection)

    async with serve(handle, "127.0.0.1", 0, **OPEN) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
        server.close()
        await server.wait_closed()


async def refused(address: str) -> str:
    with pytest.raises(Unreachable) as caught:
        await alice().dial(address, BOB.node, TIMEOUT)
    return str(caught.value)


async def proof_of_bob(listener: WebSocketListener) -> bytes:
    """What Bob shows Eve, who talks to him in her own name."""
    noise = XX(
        initiator=True,
        prologue=EVES.prologues["direct"],
        static=EVES.static,
        ephemeral=b"\x44" * 32,
    )
    async with connect(f"ws://{listener.address}/", **OPEN) as connection:
        await connection.send(noise.write(EVES.hello))
        return noise.read(await connection.recv(decode=False))


async def respond(connection: Connection, credentials: Credentials) -> None:
    handshake = Handshake(credentials, "listener", b"\x55" * 32)
    await connection.send(handshake.receive(await connection.recv(decode=False)))
    with pytest.raises((HandshakeFailed, ConnectionClosed)):
        handshake.receive(await connection.recv(decode=False))
    assert not handshake.done


async def test_somebody_in_the_middle_with_his_own_identity() -> None:
    async with answering(lambda connection: respond(connection, EVES)) as address:
        text = await refused(address)
    assert f"node {EVE.node.hex()[:8]} answered, not {BOB.node.hex()[:8]} as expected" in text


async def test_somebody_in_the_middle_with_bobs_proof() -> None:
    async with nothing_unhandled(), listening() as listener:
        stolen = Credentials(EVE, "net", b"\x33" * 32)
        stolen._proofs = dict.fromkeys(stolen._proofs, await proof_of_bob(listener))
        async with answering(lambda connection: respond(connection, stolen)) as address:
            assert "the other node's identity is not proven" in await refused(address)


async def test_somebody_in_the_middle_who_swaps_keys_on_the_way() -> None:
    """Passes on what both say, with his own ephemeral key in the place of theirs."""
    own = XX(initiator=True, prologue=b"", static=b"\x33" * 32, ephemeral=b"\x44" * 32).write(b"")
    inbox = Inbox()
    async with nothing_unhandled(), listening(inbox) as listener:
        for swapped in (0, 1):

            async def pass_on(near: Connection, swapped: int = swapped) -> None:
                async with connect(f"ws://{listener.address}/", **OPEN) as far:
                    for number, (source, sink) in enumerate(((near, far), (far, near))):
                        message = await source.recv(decode=False)
                        if number == swapped:
                            message = own + message[32:]
                        await sink.send(message)
                    await far.send(await near.recv(decode=False))

            async with answering(pass_on) as address:
                assert "cannot use" in await refused(address)
        assert inbox.channels.empty()


async def test_a_direct_handshake_passed_on_to_where_a_relayed_one_is_meant() -> None:
    class Passing:
        """A carrier that is somebody's direct connection."""

        remote_address, relayed_through = "sentinel:1", EVE.node

        def __init__(self, connection: Connection) -> None:
            self.send, self._connection = connection.send, connection

        async def receive(self) -> bytes:
            try:
                return await self._connection.recv(decode=False)
            except ConnectionClosed as error:
                raise ChannelClosed("ended") from error

        async def close(self) -> None:
            await self._connection.close()

    results = []

    async def pass_on(connection: Connection) -> None:
        try:
            bob = WebSocketTransport(BOB, "net")
            await bob.secure(Passing(connection), None, TIMEOUT, dialled=False)
        except Unreachable as error:
            results.append(str(error))

    async with nothing_unhandled(), answering(pass_on) as address:
        assert "a message failed its authentication" in await refused(address)
    assert len(results) == 1


class Recorder:
    """A relay of WebSocket messages that keeps what both sides say."""

    def __init__(self, listener: WebSocketListener) -> None:
        self._listener = listener
        self.there: list[bytes] = []
        self.back: list[bytes] = []

    async def __call__(self, near: Connection) -> None:
        async with connect(f"ws://{self._listener.address}/", **OPEN) as far:
            await asyncio.gather(
                self._pump(near, far, self.there), self._pump(far, near, self.back)
            )

    async def _pump(self, source: Connection, sink: Connection, kept: list[bytes]) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in source:
                kept.append(message)
                await sink.send(message)
        await sink.close()


async def recorded(listener: WebSocketListener) -> Recorder:
    recorder = Recorder(listener)
    async with answering(recorder) as address:
        channel = await alice().dial(address, BOB.node, TIMEOUT)
        await channel.send(b"transfer")
        assert await channel.receive() == b"transfer"
        await channel.close()
    assert len(recorder.there) == 4
    assert len(recorder.back) == 2
    return recorder


async def say(connection: Connection, messages: list[bytes]) -> None:
    for message in messages:
        await connection.send(message)
    while True:
        await connection.recv()


async def test_a_whole_talk_played_again_to_the_listener_opens_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="diffuse_core")
    async with nothing_unhandled(), listening() as listener:
        recorder = await recorded(listener)
        listener._accept = inbox = Inbox()
        async with connect(f"ws://{listener.address}/", **OPEN) as connection:
            with pytest.raises(ConnectionClosed) as caught:
                await say(connection, recorder.there)
        assert caught.value.rcvd.code == 4000
        assert inbox.channels.empty()
    assert "the handshake failed: a message failed its authentication" in caplog.text
    assert "transfer" not in caplog.text


async def test_a_whole_talk_played_again_to_a_dialler_opens_nothing() -> None:
    async with nothing_unhandled(), listening() as listener:
        recorder = await recorded(listener)

        async def play(connection: Connection) -> None:
            await connection.recv()
            for message in recorder.back:
                await connection.send(message)
            await connection.wait_closed()

        async with answering(play) as address:
            assert "a message failed its authentication" in await refused(address)


async def test_the_bytes_of_a_connection_played_again_open_nothing() -> None:
    """From the first byte on: the upgrade from HTTP is part of it."""
    kept = [bytearray(), bytearray()]

    def keep(way: int, _at: int, data: bytes) -> bytes:
        kept[way].extend(data)
        return data

    async with nothing_unhandled(), listening() as listener:
        async with relay(listener.address, keep) as address:
            channel = await alice().dial(address, BOB.node, TIMEOUT)
            await channel.send(b"transfer")
            await channel.receive()
            await channel.close()
        listener._accept = inbox = Inbox()
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(kept[0])
        async with asyncio.timeout(TIMEOUT):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
        assert inbox.channels.empty()

        async def play(_: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            sink.write(kept[1])
            await sink.drain()

        async with plain_listener(play) as address:
            assert "is no Diffuse node" in await refused(address)


async def test_what_one_says_coming_back_opens_nothing() -> None:
    async def reflect(connection: Connection) -> None:
        async for message in connection:
            await connection.send(message)

    async with nothing_unhandled(), answering(reflect) as address:
        assert f"cannot use {address}: " in await refused(address)


def without(line: bytes) -> Callable[[int, int, bytes], bytes]:
    """Takes a header away, on both ways."""

    def edit(_way: int, _at: int, data: bytes) -> bytes:
        lines = data.split(b"\r\n")
        return b"\r\n".join(one for one in lines if not one.lower().startswith(line))

    return edit


async def test_the_version_in_the_upgrade_cannot_be_stripped() -> None:
    inbox = Inbox()
    async with nothing_unhandled(), listening(inbox) as listener:
        async with relay(listener.address, without(b"sec-websocket-protocol")) as address:
            assert "is no Diffuse node" in await refused(address)
        for offered in ([], ["diffuse0"], ["chat"]):
            with pytest.raises((InvalidStatus, ConnectionClosed)):
                async with connect(
                    f"ws://{listener.address}/", **{**OPEN, "subprotocols": offered or None}
                ) as connection:
                    await connection.recv()
        assert inbox.channels.empty()

    async def other(connection: Connection) -> None:
        await connection.wait_closed()

    for subprotocols in (None, ["diffuse0"]):
        async with serve(
            other, "127.0.0.1", 0, **{**OPEN, "subprotocols": subprotocols}
        ) as server:
            host, port = server.sockets[0].getsockname()
            assert "is no Diffuse node" in await refused(f"{host}:{port}")
            server.close()
            await server.wait_closed()
    await settled()


@pytest.mark.parametrize("major", [0, 1, 300])
async def test_the_version_in_the_greeting_cannot_be_changed(major: int) -> None:
    """Neither into one that would be refused for another reason, nor back into the right one."""

    async def pass_on(near: Connection) -> None:
        greeting = Handshake(
            Credentials(ALICE, "net", b"\x05" * 32, major), "dialler", b"\x11" * 32
        ).start()
        async with connect(f"ws://{listener.address}/", **OPEN) as far:
            first = await near.recv(decode=False)
            await far.send(first[:32] + greeting[32:])
            try:
                await near.send(await far.recv(decode=False))
            except ConnectionClosed as error:
                await near.close(error.rcvd.code)

    inbox = Inbox()
    async with nothing_unhandled(), listening(inbox) as listener:
        async with answering(pass_on) as address:
            assert "speaks another protocol version; update the older" in await refused(address)
        assert inbox.channels.empty()
