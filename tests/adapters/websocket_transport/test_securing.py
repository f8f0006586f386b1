"""Channels through somebody in the middle who carries bytes and is trusted with nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.websocket_transport import WebSocketTransport, securing
from diffuse_core.adapters.websocket_transport.sealed_channel import SealedChannel
from diffuse_core.domain.channel import Credentials
from diffuse_core.domain.messages import PROTOCOL_MAJOR
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.adapters.carriers import SENTINEL, QueueCarrier, carriers
from tests.adapters.websocket_transport.meeting import ALICE, BOB, EVE, TIMEOUT, settled, until

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

KEY, OTHER = b"k" * 32, b"o" * 32


async def meet(
    one: WebSocketTransport,
    other: WebSocketTransport,
    ends: tuple[QueueCarrier, QueueCarrier],
    expected: NodeId | None = BOB.node,
    caller: NodeId | None = None,
) -> list[SealedChannel | BaseException]:
    return await asyncio.gather(
        one.secure(ends[0], expected, TIMEOUT, dialled=True),
        other.secure(ends[1], caller, TIMEOUT, dialled=False),
        return_exceptions=True,
    )


def transports(
    network: str = "net", key: bytes | None = None
) -> tuple[WebSocketTransport, WebSocketTransport]:
    return WebSocketTransport(ALICE, "net", key), WebSocketTransport(BOB, network, key)


async def channels(
    ends: tuple[QueueCarrier, QueueCarrier], key: bytes | None = None
) -> tuple[SealedChannel, SealedChannel]:
    near, far = await meet(*transports(key=key), ends, caller=ALICE.node)
    assert isinstance(near, SealedChannel)
    assert isinstance(far, SealedChannel)
    return near, far


@pytest.mark.parametrize("key", [None, KEY])
async def test_both_ends_are_proven_and_frames_go_both_ways(key: bytes | None) -> None:
    ends = carriers()
    near, far = await channels(ends, key)
    assert (near.remote, far.remote) == (BOB.node, ALICE.node)
    assert near.relayed_through == far.relayed_through == SENTINEL
    assert near.remote_address == "sentinel:1"
    for sends, gets in ((near, far), (far, near)):
        for frame in (b"", b"x", bytes(MAX_FRAME_BYTES)):
            await sends.send(frame)
            assert await gets.receive() == frame
    await far.close()
    with pytest.raises(ChannelClosed, match="closed the channel"):
        await near.receive()
    await near.close()
    assert ends[0].closed
    await settled()


async def test_what_the_carrier_sees_shows_neither_ids_nor_frames() -> None:
    ends = carriers()
    seen = []
    for end in ends:
        end.tap = seen.append
    near, far = await channels(ends)
    await near.send(b"a secret prompt")
    assert await far.receive() == b"a secret prompt"
    await near.close()
    sent = b"".join(seen)
    assert len(seen) == 5
    for secret in (b"a secret prompt", ALICE.node, BOB.node):
        assert secret not in sent


async def test_an_end_without_a_farewell_is_told_apart() -> None:
    ends = carriers()
    near, far = await channels(ends)
    await ends[0].close()
    for channel in (near, far):
        with pytest.raises(ChannelClosed, match="broke off"):
            await channel.receive()
        with pytest.raises(ChannelClosed, match="broke off"):
            await channel.send(b"late")


@pytest.mark.parametrize("change", ["flip", "drop", "double", "cut"])
async def test_a_carrier_that_changes_frames_ends_the_channel(change: str) -> None:
    ends = carriers()
    near, far = await channels(ends)
    ends[0].change = {
        "flip": lambda wire: [wire[:-1] + bytes([wire[-1] ^ 1])],
        "drop": lambda wire: [],
        "double": lambda wire: [wire, wire],
        "cut": lambda wire: [wire[:-1]],
    }[change]
    await near.send(b"one")
    if change == "drop":
        ends[0].change = lambda wire: [wire]
        await near.send(b"two")
    if change == "double":
        assert await far.receive() == b"one"
    with pytest.raises(ChannelClosed, match="misbehaved: a message failed its authentication"):
        await far.receive()
    assert ends[1].closed
    with pytest.raises(ChannelClosed, match="broke off"):
        await near.receive()


async def test_a_slow_carrier_ends_the_senders_wait_and_a_close() -> None:
    ends = carriers()
    near, far = await channels(ends)
    near._deadline = 0.01
    ends[0].stuck = True
    with pytest.raises(ChannelClosed, match=r"did not read for 0\.01 s"):
        await near.send(b"x")
    assert ends[0].closed
    await far.close()


async def test_closing_is_bounded_and_leaves_a_frame_on_its_way_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diffuse_core.adapters.websocket_transport.sealed_channel.CLOSE_S", 0.05)
    ends = carriers()
    near, _ = await channels(ends)
    ends[0].stuck = True
    sending = asyncio.create_task(near.send(b"x"))
    await until(lambda: near._order.locked())
    async with asyncio.timeout(10):
        await near.close()
    assert ends[0].closed
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


async def test_cancelling_a_close_still_ends_the_carrier() -> None:
    ends = carriers()
    near, _ = await channels(ends)
    ends[0].stuck = True
    closing = asyncio.create_task(near.close())
    await until(lambda: near._order.locked())
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ends[0].closed


async def refusals(
    one: WebSocketTransport, other: WebSocketTransport, expected: NodeId | None = None
) -> tuple[str, str]:
    """What both ends say; both carriers are closed and no task is left."""
    ends = carriers()
    results = await meet(one, other, ends, expected)
    assert all(type(result) is Unreachable for result in results)
    assert all(end.closed for end in ends)
    await settled()
    return str(results[0]), str(results[1])


async def test_both_ends_are_told_what_differs() -> None:
    there = f"the node behind sentinel {SENTINEL.hex()[:8]} at sentinel:1"
    here = f"cannot use {there}: "
    told = await refusals(*transports(network="other"))
    assert told[0] == f"{there} is on another network; give both nodes the same --network"
    assert told[1].startswith(here)
    newer = WebSocketTransport(BOB, "net")
    newer._credentials = Credentials(BOB, "net", bytes(range(32)), major=PROTOCOL_MAJOR + 1)
    told = await refusals(WebSocketTransport(ALICE, "net"), newer)
    assert told[0] == f"{there} speaks another protocol version; update the older node"
    for keys, texts in (
        ((None, KEY), ("is on a network with a key", "gave no network key")),
        ((KEY, None), ("has no network key and this node has one", "has a network key, this one")),
        ((OTHER, KEY), ("has another network key", "has another network key")),
    ):
        one, other = (
            WebSocketTransport(who, "net", key)
            for who, key in zip((ALICE, BOB), keys, strict=True)
        )
        told = await refusals(one, other)
        assert texts[0] in told[0]
        assert texts[1] in told[1]


async def test_another_id_than_expected_at_either_end() -> None:
    told = await refusals(*transports(), expected=EVE.node)
    assert f"node {BOB.node.hex()[:8]} answered, not {EVE.node.hex()[:8]} as expected" in told[0]
    assert "refused the handshake" in told[1]
    ends = carriers()
    near, far = await meet(*transports(), ends, caller=EVE.node)
    assert isinstance(near, SealedChannel)
    assert "answered, not" in str(far)
    # The dialler was done first: it hears at its first frame or answer.
    with pytest.raises(ChannelClosed):
        await near.receive()
    assert all(end.closed for end in ends)


async def test_a_node_that_is_led_to_itself() -> None:
    told = await refusals(*(WebSocketTransport(ALICE, "net") for _ in range(2)))
    assert "is this node itself" in told[0]


async def test_a_carrier_that_says_nothing_or_ends_or_talks_nonsense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(securing, "CLOSE_S", 0.01)
    transport = WebSocketTransport(ALICE, "net")
    for dialled in (True, False):
        for message, text in (
            ("silence", r"did not answer within 0\.02 s; try again"),
            ("end", "hung up during the handshake; try again"),
            (b"\x00\x00", "hung up during the handshake; try again"),
            (b"", "cannot use the node behind"),
            (bytes(MAX_FRAME_BYTES), "no place in a handshake"),
            (bytes(200), "cannot use the node behind"),
        ):
            one, other = carriers()
            if message == "end":
                await other.close()
            elif message != "silence":
                await other.send(message)
            with pytest.raises(Unreachable, match=text):
                await transport.secure(one, None, 0.02, dialled=dialled)
            assert one.closed
            await settled()


async def test_a_carrier_that_takes_nothing_more_does_not_hold_up_the_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(securing, "CLOSE_S", 0.01)
    one, other = carriers()
    await other.send(bytes(200))
    one.stuck = True
    with pytest.raises(Unreachable, match="cannot use"):
        await WebSocketTransport(ALICE, "net").secure(one, None, TIMEOUT, dialled=False)
    assert one.closed


async def test_cancelling_leaves_nothing_behind() -> None:
    one, _ = carriers()
    securing_it = asyncio.create_task(
        WebSocketTransport(ALICE, "net").secure(one, None, TIMEOUT, dialled=True)
    )
    await asyncio.sleep(0)
    securing_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await securing_it
    assert one.closed
    await settled()


async def test_a_narrowed_channel_ends_with_a_frame_that_is_too_large() -> None:
    ends = carriers()
    near, far = await channels(ends)
    far.narrow(10)
    for size in (10, 11):
        await near.send(bytes(size))
    assert await far.receive() == bytes(10)
    with pytest.raises(ChannelClosed, match="misbehaved: it sent more than 10 bytes at once"):
        await far.receive()
    assert ends[1].closed
