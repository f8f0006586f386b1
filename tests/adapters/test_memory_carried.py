"""Channels over a carrier, without cryptography."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.adapters.carriers import SENTINEL, QueueCarrier, carriers

if TYPE_CHECKING:
    from diffuse_core.adapters.memory_transport import CarriedChannel

ALICE, BOB, EVE = (NodeId(bytes([i]) * 32) for i in (1, 2, 3))


async def meet(
    near: QueueCarrier, far: QueueCarrier, expected: NodeId | None = BOB
) -> tuple[CarriedChannel, CarriedChannel]:
    network = MemoryNetwork()
    a, b = await asyncio.gather(
        network.transport(ALICE).secure(near, expected, 1.0, dialled=True),
        network.transport(BOB).secure(far, None, 1.0, dialled=False),
        return_exceptions=True,
    )
    for one in (a, b):
        if isinstance(one, BaseException):
            raise one
    return a, b


async def test_frames_go_both_ways_and_the_sentinel_is_known() -> None:
    near, far = await meet(*carriers())
    assert (near.remote, far.remote) == (BOB, ALICE)
    assert near.relayed_through == far.relayed_through == SENTINEL
    assert near.remote_address == "sentinel:1"
    for sends, gets in ((near, far), (far, near)):
        for frame in (b"", b"x", bytes(MAX_FRAME_BYTES)):
            await sends.send(frame)
            assert await gets.receive() == frame
    with pytest.raises(ValueError, match="passes"):
        await near.send(bytes(MAX_FRAME_BYTES + 1))


async def test_what_was_sent_before_an_orderly_end_still_arrives() -> None:
    carried = carriers()
    near, far = await meet(*carried)
    await near.send(b"last words")
    await near.close()
    await near.close()
    assert await far.receive() == b"last words"
    with pytest.raises(ChannelClosed, match="closed the channel"):
        await far.receive()
    with pytest.raises(ChannelClosed, match="this side closed"):
        await near.send(b"late")
    await far.close()
    assert all(carrier.closed for carrier in carried)


async def test_the_end_of_the_carrier_is_the_end_of_the_channel() -> None:
    one, other = carriers()
    near, far = await meet(one, other)
    await one.close()
    with pytest.raises(ChannelClosed, match="broke off"):
        await far.receive()
    with pytest.raises(ChannelClosed, match="broke off"):
        await near.send(b"x")


async def test_a_slow_reader_ends_the_senders_wait() -> None:
    one, other = carriers()
    near, _ = await meet(one, other)
    near.send_deadline = 0.01
    one.stuck = True
    with pytest.raises(ChannelClosed, match=r"did not read for 0\.01 s"):
        await near.send(b"x")
    assert one.closed


async def test_who_answers_is_checked() -> None:
    one, other = carriers()
    with pytest.raises(Unreachable, match="node 02020202 answered, not 03030303"):
        await meet(one, other, EVE)
    assert one.closed


async def test_silence_and_an_end_and_nonsense_lead_to_no_channel() -> None:
    transport = MemoryNetwork().transport(ALICE)
    for prepare in ("silence", "end", "nonsense"):
        one, other = carriers()
        if prepare == "end":
            await other.close()
        if prepare == "nonsense":
            await other.send(b"short")
        with pytest.raises(Unreachable):
            await transport.secure(one, None, 0.01, dialled=True)
        assert one.closed


async def test_a_narrowed_channel_ends_with_a_frame_that_is_too_large() -> None:
    near, far = await meet(*carriers())
    far.narrow(10)
    for size in (10, 11):
        await near.send(bytes(size))
    assert await far.receive() == bytes(10)
    with pytest.raises(ChannelClosed, match="sent more than 10 bytes at once"):
        await far.receive()
