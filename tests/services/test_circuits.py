"""Circuits: two nodes that nobody can dial talk through a sentinel, and a liar gains nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.codec import encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import BundlePart, Ping
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    CircuitReady,
    JoinCircuit,
    OpenCircuit,
    RelayRefused,
)
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import Unreachable
from diffuse_core.services import circuits
from diffuse_core.services.circuits import CircuitCarrier, CircuitTransport, join
from tests.services.hidden import DIGEST, Town, ask, tell
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.ports import Channel


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
def town(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Town:
    return Town(stack, sockets=request.param)


async def test_two_hidden_nodes_talk_through_a_sentinel(town: Town) -> None:
    sentinel = await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    link = await one.to(two)
    assert link.remote == two.id
    assert link.relayed_through == sentinel.id
    assert link.remote_address == sentinel.address
    await until(lambda: two.links.find(one.id))
    back = two.links.find(one.id)
    assert back is not None
    assert back.relayed_through == sentinel.id
    room = MAX_FRAME_BYTES - len(encode(BundlePart(DIGEST, 1, 1)))
    await asyncio.gather(
        one.says(link, 1, two, bytes(range(256)) * (room // 256)),
        two.says(back, 1, one, b"\xff" * room),
    )
    for number in range(2, 50):
        await one.says(link, number, two)
    await back.close()
    await until(lambda: link.closed)
    await town.settled()


async def test_many_circuits_to_one_node_at_once(town: Town) -> None:
    await town.sentinel()
    target = await town.reserved()
    sources = [town.hidden() for _ in range(20)]
    links = await asyncio.gather(*(source.to(target) for source in sources))
    for number, (source, link) in enumerate(zip(sources, links, strict=True)):
        await source.says(link, number, target)
    assert len(target.links.linked()) == 21
    await asyncio.gather(*(link.close() for link in links))
    await town.settled()


async def test_a_circuit_ends_at_both_ends_with_its_sentinel(town: Town) -> None:
    sentinel = await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    link = await one.to(two)
    await until(lambda: two.links.find(one.id))
    await sentinel.end()
    await until(lambda: link in one.ended)
    await until(lambda: two.links.find(one.id) is None)
    await town.settled()


async def test_a_cancelled_send_harms_nobody_else(town: Town) -> None:
    await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    link = await one.to(two)
    for turns in range(1, 8):
        big = BundlePart(DIGEST, turns, 0)
        sending = asyncio.create_task(link.send(big, bytes(20 * MAX_PIECE_BYTES)))
        for _ in range(turns):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await one.says(link, turns, two)
    assert not link.closed


@pytest.mark.parametrize("turns", [2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 30, 40])
async def test_a_cancelled_dial_leaves_nothing_behind(town: Town, turns: int) -> None:
    await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    way = two.reservations.addresses()[0]
    dial = asyncio.create_task(one.transport.dial(way, two.id, 5.0), name="dial through")
    for _ in range(turns):
        await asyncio.sleep(0)
    dial.cancel()
    (outcome,) = await asyncio.gather(dial, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.close()
    await town.settled()
    await until(lambda: two.links.find(one.id) is None)
    await until(lambda: len(town.memory._channels) == (0 if town.sockets else 2))


@pytest.mark.parametrize("stage", ["opened", "offered", "joined"])
async def test_a_dial_that_is_cancelled_half_way_ends_the_other_half(
    town: Town, stage: str
) -> None:
    sentinel = await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    reached = {
        "opened": lambda: sentinel.relay.figures().circuits,
        "offered": lambda: two.reservations._joins,
        "joined": lambda: len(sentinel.node.links._surrendered) == 2,
    }[stage]
    way = two.reservations.addresses()[0]
    dial = asyncio.create_task(one.transport.dial(way, two.id, 5.0), name="dial through")
    async with asyncio.timeout(5):
        while not reached():  # noqa: ASYNC110  (it passes by too fast for a longer sleep)
            await asyncio.sleep(0)
    assert not dial.done()
    dial.cancel()
    await asyncio.wait([dial])
    assert dial.cancelled()
    await town.settled()
    await until(lambda: two.links.find(one.id) is None)


async def test_a_direct_address_is_dialled_directly(town: Town) -> None:
    sentinel = await town.sentinel()
    one = town.hidden()
    channel = await one.transport.dial(sentinel.address, None, 5.0)
    assert channel.remote == sentinel.id
    assert channel.relayed_through is None
    await channel.close()
    way = str(RelayedAddress(sentinel.id, sentinel.address))
    channel = await one.transport.dial(way, sentinel.id, 5.0)
    assert channel.relayed_through is None
    await channel.close()


async def test_addresses_that_lead_nowhere_are_told_in_words(town: Town) -> None:
    sentinel = await town.sentinel()
    one, two = town.hidden(), town.hidden()
    way = str(RelayedAddress(sentinel.id, sentinel.address))

    async def refused(address: str, node: object, words: str) -> None:
        with pytest.raises(Unreachable, match=words):
            await one.transport.dial(address, node, 5.0)  # type: ignore[arg-type]

    await refused("relay:abc@mem:1", two.id, "is no relayed address")
    await refused(str(RelayedAddress(sentinel.id, way[:100])), two.id, "is no relayed address")
    await refused(way, None, "id of the one that is wanted must be known")
    await refused(way, one.id, "this node itself")
    await refused(str(RelayedAddress(one.id, sentinel.address)), two.id, "through this very node")
    await refused(way, two.id, "has no reservation of node")
    await refused(str(RelayedAddress(sentinel.id, "nothing")), two.id, "cannot be reached")
    strict = CircuitTransport(one.base, one.id, frozenset({two.id}))
    with pytest.raises(Unreachable, match="not on this node's allow list"):
        await strict.dial(way, two.id, 5.0)
    await town.settled()


async def test_another_address_of_the_sentinel_is_tried(town: Town) -> None:
    sentinel = await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    gone = await town.liar(lambda channel: channel.close())
    way = str(RelayedAddress(sentinel.id, gone.address))
    with pytest.raises(Unreachable, match="cannot be reached"):
        await one.transport.dial(way, two.id, 5.0)
    chain = str(RelayedAddress(sentinel.id, sentinel.address))
    one.transport.addresses = lambda _: (chain, sentinel.address)
    channel = await one.transport.dial(way, two.id, 5.0)
    assert channel.remote == two.id
    await channel.close()
    await town.settled()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RelayRefused("unknown"), "has no reservation of node"),
        (RelayRefused("busy"), "has no room for more circuits"),
        (RelayRefused("limit"), "lets this node have no more circuits"),
        (RelayRefused("gone"), "did not get node"),
        (NotAllowed(), "allow list"),
    ],
)
async def test_a_refusal_is_told_with_what_to_do(
    town: Town, answer: RelayRefused, words: str
) -> None:
    async def refuse(channel: Channel) -> None:
        assert isinstance(await ask(channel), OpenCircuit)
        await tell(channel, Ping(1), answer)

    liar, one = await town.liar(refuse), town.hidden()
    with pytest.raises(Unreachable, match=words) as failure:
        await one.transport.dial(liar.way_to(), Identity(b"x" * 32).node, 5.0)
    # What says nothing of the node itself is as if there had been no answer.
    silent = isinstance(answer, RelayRefused) and answer.problem != "unknown"
    assert isinstance(failure.value.__cause__, TimeoutError) == silent
    await until(lambda: not liar.serving)


@pytest.mark.parametrize("ready", [False, True])
async def test_silence_is_told_as_silence(
    town: Town, monkeypatch: pytest.MonkeyPatch, *, ready: bool
) -> None:
    monkeypatch.setattr(circuits, "HANG_UP_S", 0.02)

    async def be_silent(channel: Channel) -> None:
        await ask(channel)
        await tell(channel, *((CircuitReady(),) if ready else (Ping(1),)))

    liar, one = await town.liar(be_silent), town.hidden()
    for _ in range(2):
        with pytest.raises(Unreachable, match=r"no answer|did not answer") as failure:
            await one.transport.dial(liar.way_to(), Identity(b"x" * 32).node, 0.1)
        assert isinstance(failure.value.__cause__, TimeoutError)
    await until(lambda: not liar.serving)
    assert len(liar.channels) == 2


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xff" * 9, b"\x00" + b"z" * 20, bytes(MAX_PIECE_BYTES), bytes(MAX_PIECE_BYTES + 1)],
)
@pytest.mark.parametrize("ready", [False, True])
async def test_garbage_ends_the_dial(town: Town, frame: bytes, *, ready: bool) -> None:
    async def mumble(channel: Channel) -> None:
        await ask(channel)
        if ready:
            await tell(channel, CircuitReady())
        await channel.send(frame)

    liar, one = await town.liar(mumble), town.hidden()
    with pytest.raises(Unreachable, match="no way to node"):
        await one.transport.dial(liar.way_to(), Identity(b"x" * 32).node, 5.0)
    await until(lambda: not liar.serving)


async def test_a_sentinel_that_joins_somebody_else_is_found_out(town: Town) -> None:
    """The man in the middle: it takes the circuit itself, under keys of its own."""

    async def be_the_other_end(channel: Channel) -> None:
        await ask(channel)
        await tell(channel, CircuitReady())
        with pytest.raises(Unreachable):
            await eve.base.secure(CircuitCarrier(channel), one.id, 5.0, dialled=False)

    liar, one, eve = await town.liar(be_the_other_end), town.hidden(), town.hidden()
    with pytest.raises(Unreachable, match=r"answered, not .* as expected"):
        await one.transport.dial(liar.way_to(), Identity(b"x" * 32).node, 5.0)
    await until(lambda: not liar.serving)


async def test_who_joins_knows_who_asked_and_finds_out_a_liar(town: Town) -> None:
    joined = asyncio.Event()

    async def be_the_source(channel: Channel) -> None:
        assert await ask(channel) == JoinCircuit(b"c" * 16)
        joined.set()
        await tell(channel, CircuitReady())
        with pytest.raises(Unreachable):
            await eve.base.secure(CircuitCarrier(channel), two.id, 5.0, dialled=True)

    liar, two, eve = await town.liar(be_the_source), town.hidden(), town.hidden()
    offer = CircuitOffered(b"c" * 16, Identity(b"x" * 32).node)
    way = RelayedAddress(liar.id, liar.address)
    with pytest.raises(Unreachable, match=r"answered, not .* as expected"):
        await join(two.base, way, offer.circuit, offer.source, 5.0)
    assert joined.is_set()
    await until(lambda: not liar.serving)


async def test_a_circuit_that_nobody_uses_is_given_up(town: Town) -> None:
    async def be_silent(channel: Channel) -> None:
        await ask(channel)

    liar, two = await town.liar(be_silent), town.hidden()
    way = RelayedAddress(liar.id, liar.address)
    with pytest.raises(Unreachable, match="did not use it within"):
        await join(two.base, way, b"c" * 16, Identity(b"x" * 32).node, 0.05)
    await until(lambda: not liar.serving)
