"""Through a real splice of two dedicated channels: what passes, and right behind the handshake."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.adapters.websocket_transport.connection import MAX_UNPROVEN_BYTES, OPTIONS
from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES, MAX_SEALED_BYTES, sealed_size
from diffuse_core.errors import ChannelClosed
from diffuse_core.services.circuits import CircuitCarrier
from diffuse_core.services.splice import splice
from tests.adapters.websocket_transport.meeting import ALICE, BOB, TIMEOUT, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.ports import Channel

SENTINEL = Identity(b"\x09" * 32)


def test_pieces_and_sealed_frames_fit_what_a_connection_takes() -> None:
    assert OPTIONS["max_size"] == MAX_SEALED_BYTES >= sealed_size(MAX_FRAME_BYTES)
    assert sealed_size(MAX_PIECE_BYTES) < MAX_UNPROVEN_BYTES < MAX_SEALED_BYTES


async def free(_amount: int) -> None:
    """Nothing to pay."""


@contextlib.asynccontextmanager
async def circuit() -> AsyncIterator[list[CircuitCarrier]]:
    """Carriers of Alice and Bob, joined by a sentinel that takes pieces only."""
    halves: asyncio.Queue[Channel] = asyncio.Queue()
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def keep(channel: Channel) -> None:
        channel.narrow(MAX_PIECE_BYTES)
        halves.put_nowait(channel)
        await asyncio.shield(over)

    listener = await WebSocketTransport(SENTINEL, "net").listen("127.0.0.1", 0, keep)
    channels = [
        await WebSocketTransport(who, "net").dial(listener.address, SENTINEL.node, TIMEOUT)
        for who in (ALICE, BOB)
    ]
    one, other = await halves.get(), await halves.get()
    first = asyncio.create_task(one.receive())
    splicing = asyncio.create_task(splice(one, other, free, over, first=first, stalled_s=5))
    yield [CircuitCarrier(channel) for channel in channels]
    over.set_result(None)
    await splicing
    for channel in channels:
        await channel.close()
    await listener.close()
    await settled()


async def test_the_largest_frames_pass_both_ways_right_behind_the_handshake() -> None:
    frames = [b"\x5a" * MAX_FRAME_BYTES, b"", b"small"]

    async def end(identity: Identity, carrier: CircuitCarrier, *, dialled: bool) -> list[bytes]:
        transport = WebSocketTransport(identity, "net")
        channel = await transport.secure(carrier, None, TIMEOUT, dialled=dialled)
        carrier.trust()
        assert channel.relayed_through == SENTINEL.node

        async def send() -> None:
            for frame in frames:
                await channel.send(frame)

        sending = asyncio.create_task(send())
        got = [await channel.receive() for _ in frames]
        await sending
        return got

    async with circuit() as (near, far):
        assert await asyncio.gather(
            end(ALICE, near, dialled=True), end(BOB, far, dialled=False)
        ) == [frames, frames]


async def test_an_end_of_either_side_is_told_to_the_other_as_orderly() -> None:
    async with circuit() as (near, far):
        one, other = await asyncio.gather(
            WebSocketTransport(ALICE, "net").secure(near, BOB.node, TIMEOUT, dialled=True),
            WebSocketTransport(BOB, "net").secure(far, ALICE.node, TIMEOUT, dialled=False),
        )
        await one.send(b"last words")
        await one.close()
        assert await other.receive() == b"last words"
        with pytest.raises(ChannelClosed, match="closed the channel"):
            await other.receive()
        await other.close()
