"""The relay against nodes that lie, flood and stall: they gain nothing, and others go on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import QUEUE_FRAMES
from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.codec import encode
from diffuse_core.domain.messages import CloseSession
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import CircuitReady, JoinCircuit, OpenCircuit, RelayRefused
from diffuse_core.errors import ChannelClosed
from tests.services.relaying import Relaying, break_off, ended, heard, refusal, relay_tasks
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.ports import Channel
    from tests.services.relaying import End

PIECE = b"\x01" * MAX_PIECE_BYTES


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
async def relaying(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Relaying:
    return await Relaying(
        stack, RelayLimits(stalled_s=0.3, join_s=60.0), sockets=request.param
    ).start()


@pytest.fixture
async def honest(relaying: Relaying) -> tuple[Channel, Channel]:
    """A circuit that must go on whatever others do."""
    return await relaying.circuit(relaying.end(101), await relaying.reserved(102))


async def goes_on(halves: tuple[Channel, Channel]) -> None:
    near, far = halves
    async with asyncio.timeout(5):
        await near.send(b"question")
        assert await far.receive() == b"question"
        await far.send(b"answer")
        assert await near.receive() == b"answer"


async def test_nobody_joins_what_was_not_offered_to_it(
    relaying: Relaying, honest: tuple[Channel, Channel]
) -> None:
    source, target, other = relaying.end(1), await relaying.reserved(2), await relaying.reserved(3)
    near = await source.open(target)
    offer = await target.offered()
    assert offer.source == source.id
    for end in (source, other, relaying.end(4)):
        assert await refusal(await end.join(offer)) == "gone"
    assert await refusal(await target.ask(JoinCircuit(b"guess" + bytes(11)))) == "gone"
    assert relaying.relay.refused == {"gone": 4}
    far = await target.join(offer)
    assert isinstance(await heard(far), CircuitReady)
    assert isinstance(await heard(near), CircuitReady)
    assert await refusal(await target.join(offer)) == "gone"
    await goes_on((near, far))
    await far.close()
    assert await ended(near)
    await until(lambda: relaying.relay.figures().circuits == 1)
    assert await refusal(await target.join(offer)) == "gone"
    await goes_on(honest)


async def test_there_is_no_circuit_to_oneself_nor_to_who_did_not_reserve(
    relaying: Relaying,
) -> None:
    target = await relaying.reserved(2)
    assert await refusal(await target.open(target)) == "unknown"
    assert await refusal(await relaying.end(1).open(relaying.end(3))) == "unknown"
    sentinel = OpenCircuit(relaying.sentinel.id)
    assert await refusal(await relaying.end(1).ask(sentinel)) == "unknown"
    await relaying.idle()


async def test_messages_after_the_first_are_bytes_like_any(relaying: Relaying) -> None:
    near, far = await relaying.circuit(relaying.end(1), await relaying.reserved(2))
    for message in (OpenCircuit(relaying.end(3).id), JoinCircuit(bytes(16)), CircuitReady()):
        await near.send(encode(message))
        assert await far.receive() == encode(message)
        await far.send(encode(message))
        assert await near.receive() == encode(message)
    assert relaying.relay.figures().circuits == 1


@pytest.mark.parametrize("sender", ["source", "target"])
async def test_a_frame_larger_than_a_piece_ends_its_circuit_only(
    relaying: Relaying, honest: tuple[Channel, Channel], sender: str
) -> None:
    near, far = await relaying.circuit(relaying.end(1), await relaying.reserved(2))
    hostile, other = (near, far) if sender == "source" else (far, near)
    await hostile.send(PIECE)
    await hostile.send(PIECE + b"\x01")
    assert await other.receive() == PIECE
    assert await ended(other)
    assert await ended(hostile)
    await until(lambda: relaying.relay.figures().circuits == 1)
    await goes_on(honest)


async def test_a_large_frame_ends_a_circuit_before_anybody_joined(relaying: Relaying) -> None:
    target = await relaying.reserved(2)
    near = await relaying.end(1).open(target)
    offer = await target.offered()
    await near.send(PIECE + b"\x01")
    assert await ended(near)
    await relaying.idle()
    assert await refusal(await target.join(offer)) == "gone"


@pytest.mark.slow
async def test_a_reader_that_stalls_ends_its_circuit_only(
    relaying: Relaying, honest: tuple[Channel, Channel]
) -> None:
    near, far = await relaying.circuit(relaying.end(1), await relaying.reserved(2))
    # What the relay takes is in the queues and buffers of two connections, and no more.
    with pytest.raises(ChannelClosed):
        await push(near, honest, 400)
    assert await ended(far)
    await until(lambda: relaying.relay.figures().circuits == 1)
    await goes_on(honest)


async def push(channel: Channel, honest: tuple[Channel, Channel], most: int) -> None:
    for sent in range(most):
        await channel.send(PIECE)
        if sent % 16 == 0:
            await goes_on(honest)


async def test_a_flood_of_circuits_is_refused_and_holds_nothing(
    relaying: Relaying, honest: tuple[Channel, Channel]
) -> None:
    target, flooder = await relaying.reserved(2), relaying.end(1)
    most = relaying.limits.circuits_per_source
    assert await flood(flooder, target, 30, refused=30 - most) == {"limit"}
    assert relaying.relay.figures().circuits == 1 + most
    await goes_on(honest)


async def test_many_floods_leave_room_for_nodes_that_serve(stack: AsyncExitStack) -> None:
    limits = RelayLimits(circuits=16, circuits_per_source=4, offers_per_target=50)
    relaying = await Relaying(stack, limits).start()
    target = await relaying.reserved(2)
    for number in (10, 11, 12):
        assert await flood(relaying.end(number), target, 6, refused=2) == {"limit"}
    assert await flood(relaying.end(13), target, 6, refused=6) == {"busy"}
    assert relaying.relay.figures().circuits == 12
    host = relaying.end(3)
    relaying.relay._serving, relaying.relay._looked_at = frozenset([host.id]), 1e12
    await host.open(target)
    await until(lambda: relaying.relay.figures().circuits == 13)


async def flood(flooder: End, target: End, count: int, *, refused: int) -> set[str]:
    """Open circuits and leave them; the problems told to the many that are refused."""
    problems = []

    async def listen(channel: Channel) -> None:
        problems.append(await refusal(channel))

    tasks = [asyncio.create_task(listen(await flooder.open(target))) for _ in range(count)]
    await until(lambda: len(problems) == refused)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return set(problems)


async def test_made_up_nodes_take_no_more_than_all_reservations(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(reservations=20)).start()
    answers = [await relaying.end(number).reserve() for number in range(1, 41)]
    refused = [answer for answer in answers if isinstance(answer, RelayRefused)]
    assert [answer.problem for answer in refused] == ["busy"] * 20
    assert relaying.relay.figures().reservations == 20
    assert len(relaying.relay._reserved) == 20


async def test_links_that_carry_other_things_become_no_circuits(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack).start()
    target, source = await relaying.reserved(2), relaying.end(1)
    came: asyncio.Queue[Channel] = asyncio.Queue()

    async def accept(channel: Channel) -> None:
        await came.put(channel)
        await asyncio.Event().wait()

    listener = await source.transport.listen("mem", 77, accept)
    stack.push_async_callback(listener.close)
    # The sentinel dialled this one itself, for gossip.
    link = await relaying.sentinel.links.dial(listener.address)
    channel = await came.get()
    for message in (OpenCircuit(target.id), JoinCircuit(bytes(16))):
        await channel.send(encode(message))
        answer = await heard(channel)
        assert isinstance(answer, RelayRefused)
        assert answer.problem == "limit"
    assert not link.closed
    assert relaying.relay.figures().circuits == 0


async def test_who_stops_reading_its_offers_stops_nobody_else(stack: AsyncExitStack) -> None:
    many = QUEUE_FRAMES + 10
    limits = RelayLimits(
        circuits=200,
        circuits_per_source=100,
        circuits_per_target=100,
        offers_per_target=100,
        join_s=60.0,
        regain_s=60.0,
        opens=1000.0,
    )
    relaying = await Relaying(stack, limits).start()
    deaf, honest = await relaying.reserved(2), await relaying.reserved(3)
    source = relaying.end(1)
    # Nobody reads these offers; the channel's queue fills up, and then they wait.
    waits = [await source.open(deaf) for _ in range(many)]
    await until(lambda: relaying.relay.figures().circuits == many)
    await goes_on(await relaying.circuit(source, honest))
    assert any(task.get_name() == "relay offer" for task in relay_tasks())
    # Those that wait for the lost link are over at once, the others might still be taken.
    break_off(deaf.control)
    await until(lambda: relaying.relay.figures().circuits <= QUEUE_FRAMES + 1)
    await relaying.relay.close()
    assert [await refusal(channel) for channel in waits] == ["gone"] * many
    await relaying.idle()


async def test_nothing_above_debug_says_who_talks_to_whom(
    stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "diffuse_core.services.relay")
    relaying = await Relaying(stack).start()
    near, far = await relaying.circuit(relaying.end(1), await relaying.reserved(2))
    await near.send(b"a canary in the mine")
    assert await far.receive() == b"a canary in the mine"
    await far.close()
    assert await ended(near)
    await relaying.idle()
    assert "a circuit ended" in caplog.text
    assert "canary" not in caplog.text
    for number in (1, 2):
        assert relaying.end(number).id.hex()[:8] not in caplog.text


async def test_a_message_of_another_kind_first_is_no_circuit(relaying: Relaying) -> None:
    channel = await relaying.end(1).ask(CloseSession(bytes(16)))
    await channel.send(encode(OpenCircuit(relaying.end(2).id)))
    assert await refusal(channel) == "unknown"
