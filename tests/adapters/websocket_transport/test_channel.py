"""Frames over real sockets, and how a channel ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES, REKEY_S
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel

from tests.adapters.websocket_transport.meeting import (
    ALICE,
    BOB,
    TIMEOUT,
    Inbox,
    alice,
    listening,
    plain_listener,
    until,
)


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
        wire = bytearray(near._stream.seal(b"frame", 0.0))
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


@pytest.mark.parametrize("most", [0, 10, MAX_PIECE_BYTES])
async def test_a_narrowed_channel_holds_no_frame_that_is_too_large(most: int) -> None:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        far.narrow(most)
        near._stream._first_use = near._now() - REKEY_S
        await near.send(bytes(most))
        assert await far.receive() == bytes(most)
        await near.send(bytes(most + 1))
        with pytest.raises(ChannelClosed, match=f"misbehaved: it sent more than {most} bytes"):
            await far.receive()
        near = await alice().dial(listener.address, None, TIMEOUT)
        far = await inbox.channels.get()
        far.narrow(most)
        with contextlib.suppress(ChannelClosed):
            await near.send(bytes(MAX_FRAME_BYTES))
        # Not read to its end, not even into memory.
        with pytest.raises(ChannelClosed, match="broke off"):
            await far.receive()
        await near.close()


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
        # The library's own bound is not what ends it.
        near._connection.close_timeout = 60.0
        filling = asyncio.create_task(fill(near))
        await until(lambda: near._connection.transport.get_write_buffer_size() > 0)
        async with asyncio.timeout(10):
            await near.close()
            with pytest.raises(ChannelClosed):
                await filling


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
