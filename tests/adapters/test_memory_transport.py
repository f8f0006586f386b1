from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import QUEUE_FRAMES, MemoryChannel, MemoryNetwork
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed, Unreachable, UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.memory_transport import MemoryListener

ALICE, BOB, EVE = (NodeId(bytes([i]) * 32) for i in (1, 2, 3))


class Bob:
    """Listens and keeps what it accepts."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.channels: asyncio.Queue[MemoryChannel] = asyncio.Queue()
        self.ended = 0

    async def accept(self, channel: MemoryChannel) -> None:
        self.channels.put_nowait(channel)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def listen(self, port: int = 1) -> MemoryListener:
        return await self.network.transport(BOB).listen("mem", port, self.accept)


async def dial(network: MemoryNetwork, address: str = "mem:1", node: NodeId = ALICE) -> object:
    return await network.transport(node).dial(address, None, 1.0)


async def test_frames_go_both_ways_in_order() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    listener = await bob.listen()
    assert listener.address == "mem:1"
    near = await network.transport(ALICE).dial("ws://mem:1", BOB, 1.0)
    far = await bob.channels.get()
    assert (near.remote, near.remote_address) == (BOB, "mem:1")
    assert far.remote == ALICE
    for sends, gets in ((near, far), (far, near)):
        for frame in (b"1", b"", b"2"):
            await sends.send(frame)
        assert [await gets.receive() for _ in range(3)] == [b"1", b"", b"2"]
    await listener.close()
    await listener.close()
    assert bob.ended == 1


async def test_what_was_sent_before_an_orderly_end_still_arrives() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    listener = await bob.listen()
    near = await dial(network)
    far = await bob.channels.get()
    await near.send(b"last words")
    await near.close()
    await near.close()
    assert await far.receive() == b"last words"
    with pytest.raises(ChannelClosed, match="closed the channel"):
        await far.receive()
    for use in (near.receive, lambda: near.send(b"x")):
        with pytest.raises(ChannelClosed, match="this side closed"):
            await use()
    await listener.close()


async def test_addresses() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    first, second = await bob.listen(), await bob.listen(0)
    assert second.address == "mem:2"
    with pytest.raises(UsageError, match="port 1 is in use"):
        await bob.listen(1)
    await first.close()
    with pytest.raises(Unreachable, match="nothing listens at mem:1"):
        await dial(network)
    await second.close()


async def test_who_answers_is_checked() -> None:
    network = MemoryNetwork()
    listener = await Bob(network).listen()
    with pytest.raises(Unreachable, match=r"node 02020202 answered, not 03030303"):
        await network.transport(ALICE).dial("mem:1", EVE, 1.0)
    with pytest.raises(Unreachable, match="itself"):
        await dial(network, node=BOB)
    await listener.close()


async def test_queues_are_bounded() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    listener = await bob.listen()
    near = await dial(network)
    far = await bob.channels.get()
    with pytest.raises(ValueError, match="passes"):
        await near.send(bytes(MAX_FRAME_BYTES + 1))
    for number in range(QUEUE_FRAMES):
        await near.send(b"%d" % number)
    waiting = asyncio.create_task(near.send(b"one more"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await far.receive() == b"0"
    await waiting
    near.send_deadline = 0.01
    with pytest.raises(ChannelClosed, match=r"did not read for 0\.01 s"):
        await near.send(b"one too many")
    await listener.close()


async def test_cut_and_heal() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    listener = await bob.listen()
    near, other = await dial(network), await dial(network, node=EVE)
    far = await bob.channels.get()
    receiving = asyncio.create_task(near.receive())
    await asyncio.sleep(0)
    await near.send(b"lost")
    network.cut(ALICE, BOB)
    for use in (far.receive(), receiving, near.send(b"x")):
        with pytest.raises(ChannelClosed, match="broke off"):
            await use
    with pytest.raises(Unreachable, match="no answer"):
        await dial(network)
    await other.send(b"not concerned")
    network.heal(BOB, ALICE)
    again = await dial(network)
    await again.send(b"back")
    await listener.close()


async def test_kill_is_a_crash() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    await bob.listen()
    near = await dial(network)
    await bob.channels.get()
    network.kill("mem:1")
    with pytest.raises(ChannelClosed, match="broke off"):
        await near.receive()
    with pytest.raises(Unreachable, match="nothing listens"):
        await dial(network)
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - the task's end is what is tested
        await asyncio.sleep(0)
    assert bob.ended == 1


async def test_a_channel_ends_when_its_service_does(caplog: pytest.LogCaptureFixture) -> None:
    network = MemoryNetwork()

    async def fail(channel: MemoryChannel) -> None:
        raise RuntimeError("a defect")

    listener = await network.transport(BOB).listen("mem", 1, fail)
    near = await dial(network)
    with pytest.raises(ChannelClosed, match="closed the channel"):
        await near.receive()
    assert "serving the channel from" in caplog.text
    await listener.close()


async def test_a_listener_may_be_closed_by_what_it_accepted() -> None:
    network = MemoryNetwork()
    done = asyncio.Event()

    async def close(channel: MemoryChannel) -> None:
        await listener.close()
        done.set()

    listener = await network.transport(BOB).listen("mem", 1, close)
    near = await dial(network)
    with contextlib.suppress(ChannelClosed):
        await near.receive()
    async with asyncio.timeout(10):
        await done.wait()


async def test_a_narrowed_channel_ends_with_a_frame_that_is_too_large() -> None:
    network = MemoryNetwork()
    bob = Bob(network)
    listener = await bob.listen()
    near = await dial(network)
    far = await bob.channels.get()
    far.narrow(10)
    for size in (10, 11):
        await near.send(bytes(size))
    assert await far.receive() == bytes(10)
    with pytest.raises(ChannelClosed, match="sent more than 10 bytes at once"):
        await far.receive()
    with pytest.raises(ChannelClosed, match="broke off"):
        await near.receive()
    await listener.close()
