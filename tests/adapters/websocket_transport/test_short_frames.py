"""Short messages past the library: the same bytes, the same order, the same ends."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from websockets.frames import Frame, Opcode

from diffuse_core.adapters.websocket_transport.short_frames import SHORT_BYTES, read, write
from diffuse_core.errors import ChannelClosed
from tests.adapters.websocket_transport.meeting import (
    BOB,
    TIMEOUT,
    Inbox,
    alice,
    listening,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel

SIZES = [0, 1, 2, 125, 126, 127, 1240, 65535]


def parsed(data: bytes, *, masked: bool) -> Frame:
    """The frame as the library reads it."""
    at = 0

    def read_exact(count: int) -> bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    def reader(count: int) -> object:
        yield from ()
        return read_exact(count)

    steps = Frame.parse(reader, mask=masked)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert at == len(data)
    return done.value.value


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_library_reads_what_is_written_and_the_other_way_round(
    size: int, masked: bool
) -> None:
    payload = random.Random(size).randbytes(size)
    frame = parsed(write(payload, masked=masked), masked=masked)
    assert (frame.opcode, bytes(frame.data), frame.fin) == (Opcode.BINARY, payload, True)
    theirs = Frame(Opcode.BINARY, payload).serialize(mask=masked)
    assert read(theirs, masked=masked) == (payload, len(theirs))
    assert read(b"before" + theirs + b"after", 6, masked=masked) == (payload, 6 + len(theirs))
    assert read(theirs, masked=not masked) is None


@pytest.mark.parametrize("masked", [False, True])
def test_anything_but_a_whole_message_is_left_to_the_library(masked: bool) -> None:
    whole = write(bytes(300), masked=masked)
    others = [Frame(Opcode.PING, b"x"), Frame(Opcode.TEXT, b"x"), Frame(Opcode.CLOSE, b"\x03\xe8")]
    others += [Frame(Opcode.BINARY, b"x", fin=False), Frame(Opcode.CONT, b"x")]
    others += [Frame(Opcode.BINARY, bytes(65536))]
    pieces = [whole[:cut] for cut in (0, 1, 2, 3, 7, 299, len(whole) - 1)]
    for data in [
        *pieces,
        b"\xc2" + whole[1:],
        *(one.serialize(mask=masked) for one in others),
    ]:
        assert read(data, masked=masked) is None


Pair = tuple["WebSocketChannel", "WebSocketChannel"]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    inbox = Inbox()
    async with listening(inbox) as listener:
        near = await alice().dial(listener.address, BOB.node, TIMEOUT)
        yield near, await inbox.channels.get()
        await near.close()


async def receive_all(channel: WebSocketChannel, count: int) -> list[bytes]:
    return [await channel.receive() for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
async def test_frames_of_all_sizes_keep_their_order(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    for one, other in (pair, pair[::-1]):
        sizes = [0, 1, 40, 1240, SHORT_BYTES, SHORT_BYTES + 1, 200_000]
        kinds = [rng.choice(sizes) for _ in range(60)]
        frames = [number.to_bytes(2) + bytes(size) for number, size in enumerate(kinds)]
        got = asyncio.ensure_future(receive_all(other, len(frames)))
        async with asyncio.timeout(TIMEOUT):
            for frame in frames:
                await one.send(frame)
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
            assert await got == frames


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_heard_and_what_is_received_are_all_in_order(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    near, far = pair
    came: list[bytes] = []
    heard: list[bytes] = []

    def take(frame: bytes) -> bool:
        if frame[2] % 2:
            return False
        heard.append(frame)
        came.append(frame)
        return True

    async def listen() -> None:
        while len(came) < len(frames):
            came.append(await far.receive())
            if rng.random() < 0.5:
                await asyncio.sleep(0)

    far.hear(take)
    frames = [
        number.to_bytes(2) + bytes([rng.randrange(9)]) + bytes(rng.choice([9, 1240, 70_000]))
        for number in range(120)
    ]
    async with asyncio.timeout(TIMEOUT):
        reader = asyncio.ensure_future(listen())
        for frame in frames:
            await near.send(frame)
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
        await until(lambda: len(came) == len(frames))
    reader.cancel()
    assert came == frames
    assert heard


async def test_what_is_sent_soon_leaves_together_and_before_what_is_sent_after_it(
    pair: Pair,
) -> None:
    near, far = pair
    heard: list[bytes] = []
    pieces: list[bytes] = []
    far.hear(lambda frame: heard.append(frame) is None)
    waiting = asyncio.ensure_future(far.receive())
    await asyncio.sleep(0)
    take_now = far._connection.take_now
    far._connection.take_now = lambda data: pieces.append(data) or take_now(data)
    frames = [bytes([number]) * 1200 for number in range(9)]
    async with asyncio.timeout(TIMEOUT):
        for frame in frames[:4]:
            assert near.idle(len(frame))
            near.send_now(frame, soon=True)
        await until(lambda: len(heard) == 4)
        assert len(pieces) == 1
        near.send_now(frames[4], soon=True)
        near.send_now(frames[5])
        near.send_now(frames[6], soon=True)
        await near._carrier.send(near._stream.seal(frames[7], 0.0))
        near.send_now(frames[8], soon=True)
        await near.close()
        with pytest.raises(ChannelClosed, match="closed the channel"):
            await waiting
    assert heard == frames


async def test_no_more_is_sent_soon_than_can_leave_at_once(pair: Pair) -> None:
    near, far = pair
    count = 0
    while near.idle(SHORT_BYTES):
        near.send_now(bytes(SHORT_BYTES - 100), soon=True)
        count += 1
    assert 3 <= count <= 4
    async with asyncio.timeout(TIMEOUT):
        await near.send(b"last")
        got = [len(frame) for frame in await receive_all(far, count + 1)]
    assert got == [SHORT_BYTES - 100] * count + [4]


async def test_what_was_to_be_sent_soon_is_lost_with_the_connection(pair: Pair) -> None:
    near, far = pair
    near.send_now(b"lost", soon=True)
    near._connection.transport.abort()
    assert not near.idle(1)
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ChannelClosed):
            await far.receive()


async def test_what_was_to_be_sent_soon_is_not_said_after_the_answer_to_a_close(
    pair: Pair,
) -> None:
    """The end that accepted ends its direction there: writing to it would be a defect."""
    near, far = pair
    loop = asyncio.get_running_loop()
    defects: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: defects.append(context))
    connection = far._connection
    close = Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True)
    far.send_now(b"too late", soon=True)
    connection.data_received(close)
    assert not connection.transport.is_closing()
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ChannelClosed):
            await far.receive()
    await near.close()
    assert not defects


@pytest.mark.parametrize("taken", [0, 2, 5])
async def test_of_many_messages_in_one_piece_those_are_heard_that_come_before_one_not_taken(
    pair: Pair, taken: int
) -> None:
    near, far = pair
    heard: list[bytes] = []

    def take(frame: bytes) -> bool:
        if len(heard) == taken:
            return False
        heard.append(frame)
        return True

    far.hear(take)
    first = asyncio.ensure_future(far.receive())
    await asyncio.sleep(0)
    frames = [bytes([number]) * 40 for number in range(6)]
    for frame in frames:
        near.send_now(frame, soon=True)
    async with asyncio.timeout(TIMEOUT):
        got = [await first, *await receive_all(far, 5 - taken)]
    assert heard + got == frames


async def test_a_frame_is_heard_only_while_the_receiver_waits(pair: Pair) -> None:
    near, far = pair
    heard: list[bytes] = []
    far.hear(lambda frame: heard.append(frame) is None)
    await near.send(b"early")
    async with asyncio.timeout(TIMEOUT):
        await until(lambda: bool(far._connection.recv_messages.frames))
        assert await far.receive() == b"early"
        waiting = asyncio.ensure_future(far.receive())
        await asyncio.sleep(0)
        await near.send(b"late")
        await until(lambda: bool(heard))
        await near.close()
        with pytest.raises(ChannelClosed, match="closed the channel"):
            await waiting
    assert heard == [b"late"]


async def test_a_changed_message_that_would_be_heard_ends_the_channel(pair: Pair) -> None:
    near, far = pair
    far.hear(lambda frame: True)
    waiting = asyncio.ensure_future(far.receive())
    await asyncio.sleep(0)
    sealed = bytearray(near._stream.seal(b"fine", 0.0))
    sealed[-1] ^= 1
    await near._carrier.send(bytes(sealed))
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ChannelClosed, match="misbehaved: a message failed"):
            await waiting


async def test_a_heard_frame_may_not_pass_what_the_channel_was_narrowed_to(pair: Pair) -> None:
    near, far = pair
    far.hear(lambda frame: True)
    far.narrow(100)
    waiting = asyncio.ensure_future(far.receive())
    await asyncio.sleep(0)
    await near.send(bytes(101))
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ChannelClosed, match="more than 100 bytes"):
            await waiting


async def test_a_short_frame_waits_for_its_turn_behind_one_that_is_not_taken(pair: Pair) -> None:
    near, far = pair
    big = asyncio.ensure_future(near.send(bytes(2**22)))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(near.send(b"small"))
    async with asyncio.timeout(TIMEOUT):
        assert len(await far.receive()) == 2**22
        assert await far.receive() == b"small"
        await asyncio.gather(big, small)
