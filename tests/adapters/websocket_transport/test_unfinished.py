"""Messages that are begun and not finished: what they may hold, and for how long."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.websocket_transport import unfinished as module
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.adapters.websocket_transport.unfinished import Unfinished
from diffuse_core.domain.channel import Credentials
from diffuse_core.domain.sealed_stream import MAX_SEALED_BYTES
from diffuse_core.errors import ChannelClosed
from tests.adapters.websocket_transport.meeting import (
    BOB,
    TIMEOUT,
    Inbox,
    alice,
    echo,
    settled,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from diffuse_core.ports import Channel

KIB = 2**10
BINARY, CONTINUED = 0x82, 0x02


def begin(channel: Channel, size: int, first: int = BINARY, total: int = MAX_SEALED_BYTES) -> None:
    """Send the head of a message of `total` bytes and so much of it."""
    head = bytes([first, 0x80 | 127]) + struct.pack(">Q", total) + bytes(4)
    channel._connection.transport.write(head + bytes(size))


@contextlib.asynccontextmanager
async def counted(
    most: int = 2**28, accept: Callable[[Channel], Awaitable[None]] = echo
) -> AsyncIterator[tuple[WebSocketListener, Unfinished]]:
    unfinished = Unfinished(most)
    listener = WebSocketListener(
        Credentials(BOB, "net", b"\x07" * 32), accept, unfinished=unfinished
    )
    await listener.start("127.0.0.1", 0)
    try:
        yield listener, unfinished
    finally:
        await listener.close()
        await settled()


async def dial(listener: WebSocketListener) -> Channel:
    return await alice().dial(listener.address, BOB.node, TIMEOUT)


async def works(channel: Channel) -> None:
    await channel.send(b"well")
    assert await channel.receive() == b"well"


async def test_what_is_not_complete_counts_and_what_is_does_not() -> None:
    async with counted() as (listener, unfinished):
        channel = await dial(listener)
        for size in (1, 200 * KIB, 4 * KIB * KIB):
            await channel.send(bytes(size))
            assert len(await channel.receive()) == size
        assert unfinished.total == 0
        begin(channel, 10 * KIB)
        await until(lambda: unfinished.total == 10 * KIB)
        other = await dial(listener)
        begin(other, KIB, CONTINUED, KIB)
        begin(other, KIB, 0x00, 4 * KIB)
        await until(lambda: unfinished.total == 12 * KIB)
        for one in (channel, other):
            one._connection.transport.abort()
            await one.close()
        await until(lambda: unfinished.total == 0)


async def test_a_message_that_never_comes_to_its_end_ends_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "GRACE_S", 0.02)
    async with counted() as (listener, unfinished):
        silent, honest = await dial(listener), await dial(listener)
        begin(silent, KIB)
        with pytest.raises(ChannelClosed, match="broke off"):
            await silent.receive()
        assert unfinished.total == 0
        await works(honest)
        await silent.close()
        await honest.close()


async def test_one_that_comes_slowly_is_waited_for_until_it_stalls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However much of it came before."""
    monkeypatch.setattr(module, "GRACE_S", -1.0)
    monkeypatch.setattr(module, "MIN_BYTES_PER_S", 1)
    async with counted() as (listener, unfinished):
        slow = await dial(listener)
        loop = listener._server.get_loop()
        begin(slow, 100 * KIB)
        for size in (100, 150):
            await until(lambda: unfinished.total == size * KIB)  # noqa: B023 - used at once
            unfinished._look(loop)
            assert unfinished.total == size * KIB
            slow._connection.transport.write(bytes(50 * KIB))
        await until(lambda: unfinished.total == 200 * KIB)
        unfinished._look(loop)
        unfinished._look(loop)
        assert unfinished.total == 0
        with pytest.raises(ChannelClosed, match="broke off"):
            await slow.receive()
        await slow.close()


async def test_one_that_we_do_not_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    inbox = Inbox()
    async with counted(accept=inbox) as (listener, unfinished):
        near = await dial(listener)
        far = await inbox.channels.get()
        for number in range(5):
            await near.send(bytes([number]))
        await until(lambda: far._connection.recv_messages.paused)
        monkeypatch.setattr(module, "MIN_BYTES_PER_S", 10**9)
        # As if it had come in with the last ones, a long time ago.
        unfinished.note(far._connection, KIB, finished=True)
        monkeypatch.setattr(module, "GRACE_S", 0.0)
        looked = unfinished._timer
        await until(lambda: unfinished._timer is not looked)
        assert unfinished.total == KIB
        assert [await far.receive() for _ in range(5)] == [bytes([n]) for n in range(5)]
        await near.close()


async def test_what_all_hold_is_bounded_and_honest_ones_are_served() -> None:
    async with counted(most=1000 * KIB) as (listener, unfinished):
        crowd = []
        for number in range(12):
            crowd.append(await dial(listener))
            begin(crowd[-1], 90 * KIB)
            held = min((number + 1) * 90, 990) * KIB
            await until(lambda: unfinished.total == held)  # noqa: B023 - used at once
        # The one that kept it longest gave way.
        with pytest.raises(ChannelClosed, match="broke off"):
            await crowd[0].receive()
        honest = await dial(listener)
        await honest.send(bytes(600 * KIB))
        assert len(await honest.receive()) == 600 * KIB
        assert unfinished.total <= 1000 * KIB
        for one in (*crowd, honest):
            one._connection.transport.abort()
            await one.close()


async def test_what_came_with_the_handshake_counts_too() -> None:
    async with counted() as (listener, unfinished):
        channel = await dial(listener)
        # Right behind the third message of the handshake: nothing more comes after it.
        begin(channel, 100 * KIB)
        await until(lambda: unfinished.total == 100 * KIB)
        channel._connection.transport.abort()
        await channel.close()


@pytest.mark.parametrize("size", [50 * KIB, 10])
async def test_a_message_under_way_passes_no_narrower_limit(size: int) -> None:
    """Whether it is too large already when the limit is set, or grows to it later."""
    inbox = Inbox()
    async with counted(accept=inbox) as (listener, unfinished):
        near = await dial(listener)
        far = await inbox.channels.get()
        begin(near, size)
        await until(lambda: unfinished.total == size)
        far.narrow(20 * KIB)
        if size < 20 * KIB:
            near._connection.transport.write(bytes(30 * KIB))
        with pytest.raises(ChannelClosed, match="broke off"):
            await far.receive()
        await until(lambda: unfinished.total == 0)
        await near.close()
