"""The relay: bytes of circuits arrive unchanged, and all is given back however they end."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.codec import encode
from diffuse_core.domain.records import Holding
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import (
    DeclineCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.domain.view import RelayFigures
from diffuse_core.errors import ChannelClosed
from tests.services.relaying import Relaying, break_off, ended, heard, refusal
from tests.services.waiting import until
from tests.simulation.model_records import MODEL, slice_of

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.records import Role
    from diffuse_core.ports import Channel


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
async def relaying(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Relaying:
    # Longer than any test: nothing is to end for that reason alone.
    limits = RelayLimits(join_s=60.0)
    return await Relaying(stack, limits, sockets=request.param).start()


async def receive_all(channel: Channel, count: int) -> list[bytes]:
    return [await channel.receive() for _ in range(count)]


async def test_bytes_arrive_unchanged_and_in_order_both_ways(relaying: Relaying) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near, far = await relaying.circuit(source, target)
    rng = random.Random(3)
    sizes = [0, 1, 4, 1200, MAX_PIECE_BYTES - 1, *[MAX_PIECE_BYTES] * 60]
    there, back = ([rng.randbytes(size) for size in sizes] for _ in range(2))

    async def send(channel: Channel, frames: list[bytes]) -> None:
        for frame in frames:
            await channel.send(frame)

    _, _, came, returned = await asyncio.gather(
        send(near, there),
        send(far, back),
        receive_all(far, len(there)),
        receive_all(near, len(back)),
    )
    assert came == there
    assert returned == back
    assert relaying.relay.figures() == RelayFigures(1, 1, 2 * sum(sizes))


async def test_what_was_sent_before_an_orderly_end_arrives(relaying: Relaying) -> None:
    for closes in (0, 1):
        source, target = relaying.end(1), await relaying.reserved(2)
        halves = await relaying.circuit(source, target)
        for number in range(50):
            await halves[closes].send(bytes([number]))
        async with asyncio.timeout(5):
            _, came = await asyncio.gather(
                halves[closes].close(), receive_all(halves[1 - closes], 50)
            )
        assert came == [bytes([number]) for number in range(50)]
        assert await ended(halves[1 - closes])
        await relaying.idle()


async def test_who_sends_before_it_is_ready_is_heard_after_it(relaying: Relaying) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near = await source.open(target)
    await near.send(b"early")
    offer = await target.offered()
    far = await target.join(offer)
    await heard(far)
    assert await far.receive() == b"early"
    await heard(near)
    await near.send(b"later")
    assert await far.receive() == b"later"


async def test_a_reservation_lasts_as_long_as_is_said(relaying: Relaying) -> None:
    target = relaying.end(2)
    assert await target.reserve() == Reserved(relaying.limits.reserved_s)
    assert await target.reserve() == Reserved(relaying.limits.reserved_s)
    assert relaying.relay.figures().reservations == 1
    await target.control.send(encode(Release()))
    await until(lambda: relaying.relay.figures().reservations == 0)
    assert await refusal(await relaying.end(1).open(target)) == "unknown"


async def test_a_circuit_outlives_the_release_of_a_reservation(relaying: Relaying) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near, far = await relaying.circuit(source, target)
    await target.control.send(encode(Release()))
    await until(lambda: relaying.relay.figures().reservations == 0)
    await near.send(b"on")
    assert await far.receive() == b"on"


async def test_who_declines_is_left_alone(relaying: Relaying) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near = await source.open(target)
    offer = await target.offered()
    await relaying.end(3).ask(DeclineCircuit(offer.circuit))
    await target.control.send(encode(DeclineCircuit(offer.circuit)))
    assert await refusal(near) == "gone"
    assert await refusal(await target.join(offer)) == "gone"
    await relaying.idle()


@pytest.mark.parametrize("vanishes", ["source", "target"])
async def test_a_half_that_vanishes_ends_the_other(relaying: Relaying, vanishes: str) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near, far = await relaying.circuit(source, target)
    gone, left = (near, far) if vanishes == "source" else (far, near)
    break_off(gone)
    assert await ended(left)
    await relaying.idle()


async def test_a_source_that_vanishes_before_the_join_is_forgotten_at_once(
    relaying: Relaying,
) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near = await source.open(target)
    offer = await target.offered()
    break_off(near)
    await relaying.idle()
    assert await refusal(await target.join(offer)) == "gone"


async def test_a_target_that_vanishes_before_the_join_is_told_of(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(regain_s=0.05)).start()
    source, target = relaying.end(1), await relaying.reserved(2)
    near = await source.open(target)
    await target.offered()
    break_off(target.control)
    assert await refusal(near) == "gone"
    await relaying.idle()
    assert relaying.relay.figures().reservations == 0


async def test_circuits_end_with_the_node_of_the_reservation(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(regain_s=0.05)).start()
    source, target = relaying.end(1), await relaying.reserved(2)
    near, far = await relaying.circuit(source, target)
    break_off(target.control)
    assert await ended(near)
    assert await ended(far)
    await relaying.idle()


async def test_circuits_go_on_when_the_node_reserves_over_another_link(
    relaying: Relaying,
) -> None:
    source, target = relaying.end(1), await relaying.reserved(2)
    near, far = await relaying.circuit(source, target)
    break_off(target.control)
    await until(lambda: not relaying.relay._reserved)
    assert await refusal(await relaying.end(3).open(target)) == "unknown"
    book, clock = relaying.relay._book, relaying.sentinel.clock
    assert book.next_deadline() - clock.monotonic() <= relaying.limits.regain_s
    target.control = None
    await target.reserve()
    assert book.next_deadline() - clock.monotonic() > relaying.limits.regain_s
    await near.send(b"on")
    assert await far.receive() == b"on"
    await relaying.circuit(relaying.end(3), target)


async def test_an_offer_not_taken_in_time_is_over(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(join_s=0.05)).start()
    target = await relaying.reserved(2)
    near = await relaying.end(1).open(target)
    offer = await target.offered()
    assert await refusal(near) == "gone"
    assert await refusal(await target.join(offer)) == "gone"
    await relaying.idle()


async def test_an_idle_circuit_is_ended_and_a_busy_one_is_not(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(idle_s=0.15)).start()
    target = await relaying.reserved(2)
    near, far = await relaying.circuit(relaying.end(3), target)
    # It comes later, and still it ends first.
    idle = await relaying.circuit(relaying.end(1), target)
    over = [asyncio.create_task(ended(half)) for half in idle]
    while not all(task.done() for task in over):
        await near.send(b"busy")
        assert await far.receive() == b"busy"
        await asyncio.sleep(0.01)
    await near.send(b"still there")
    assert await far.receive() == b"still there"


async def test_a_reservation_not_renewed_runs_out(relaying: Relaying) -> None:
    target = await relaying.reserved(2)
    kept = relaying.relay._book._reservations[target.id]
    kept.until -= relaying.limits.reserved_s - 0.02
    relaying.relay._wake.set()
    await until(lambda: relaying.relay.figures().reservations == 0)
    assert await refusal(await relaying.end(1).open(target)) == "unknown"


@pytest.mark.parametrize("how", ["relay", "node"])
async def test_all_ends_hear_that_the_sentinel_stops(relaying: Relaying, how: str) -> None:
    target = await relaying.reserved(2)
    halves = [*await relaying.circuit(relaying.end(1), target)]
    halves += await relaying.circuit(relaying.end(3), target)
    waits = await relaying.end(4).open(target)
    await target.offered()
    endings = [asyncio.create_task(ended(half)) for half in (*halves, waits)]
    async with asyncio.timeout(5):
        if how == "relay":
            await relaying.relay.close()
        else:
            await relaying.sentinel.stop()
        await asyncio.gather(*endings)
    await relaying.idle()


async def test_nothing_is_relayed_any_more_after_the_end(relaying: Relaying) -> None:
    await relaying.relay.close()
    await relaying.relay.close()
    before = relaying.sentinel.links.traffic.bytes_in
    await relaying.end(2).ask(Reserve())
    await until(lambda: relaying.sentinel.links.traffic.bytes_in > before)
    assert relaying.relay.figures() == RelayFigures(0, 0, 0)


async def test_a_displaced_node_is_told(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(reservations=1)).start()
    spare = await relaying.reserved(2)
    assert await relaying.end(3).reserve() == RelayRefused(
        "busy", "all room of this sentinel is taken; try another one, or later"
    )
    relaying.relay._serving, relaying.relay._looked_at = frozenset([relaying.end(4).id]), 1e12
    host = await relaying.reserved(4)
    told = await heard(spare.control)
    assert isinstance(told, RelayRefused)
    assert told.problem == "busy"
    await relaying.circuit(relaying.end(1), host)


async def test_hosts_that_hold_a_slice_come_first(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(reservations=1)).start()
    roles: dict[int, Role] = {30: "host", 31: "client", 32: "host"}
    for number, role in roles.items():
        node = await relaying.node(number, role)
        if number == 30:
            node.hold(Holding(MODEL, slice_of(0), "ready"))
    sentinel = relaying.sentinel
    await until(lambda: sum(member.record.holding is not None for member in sentinel.members()))
    await until(lambda: len(sentinel.members()) == 4)
    await relaying.reserved(31)
    relaying.relay._looked_at = -math.inf
    assert isinstance(await relaying.end(32).reserve(), RelayRefused)
    assert isinstance(await relaying.end(30).reserve(), Reserved)
    assert isinstance(await relaying.end(31).reserve(), RelayRefused)


async def test_a_send_into_a_circuit_that_ended_fails(relaying: Relaying) -> None:
    near, far = await relaying.circuit(relaying.end(1), await relaying.reserved(2))
    await far.close()
    assert await ended(near)
    with pytest.raises(ChannelClosed):
        await near.send(b"to nobody")
