"""Reservations: kept at two sentinels, moved when one dies, and nothing taken from a liar."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import Pull, Push
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    DeclineCircuit,
    JoinCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.reservations import ANSWER_S, Candidate
from diffuse_core.errors import Unreachable
from diffuse_core.services import reservations
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.node import Node
from diffuse_core.services.reservations import Reservations, sentinels
from tests.services.hidden import Town, ask, tell
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.ports import Channel
    from diffuse_core.services.links import Link
    from tests.services.hidden import Hidden, Liar


@pytest.fixture(params=[False, True], ids=["memory", "sockets"])
def town(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Town:
    return Town(stack, sockets=request.param)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "LOOK_S", 0.01)


class HandClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Desk:
    """A sentinel by hand: what it heard, over which channel, and what it answers to Reserve."""

    def __init__(self, *answers: AnyMessage) -> None:
        self.answers = list(answers)
        self.heard: list[AnyMessage | None] = []
        self.reserved_over: Channel | None = None

    async def __call__(self, channel: Channel) -> None:
        while True:
            message = await ask(channel)
            self.heard.append(message)
            if isinstance(message, Reserve):
                self.reserved_over = channel
                await tell(channel, *self.answers)

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.heard)

    async def offer(self, *circuits: bytes) -> None:
        assert self.reserved_over is not None
        offers = (CircuitOffered(circuit, Identity(b"x" * 32).node) for circuit in circuits)
        await tell(self.reserved_over, *offers)


def held(node: Hidden) -> list[NodeId]:
    return [way.sentinel for way in node.reservations.held()]


async def test_two_of_three_sentinels_are_reserved_at_until_the_end(town: Town) -> None:
    one, two, three = [await town.sentinel() for _ in range(3)]
    node = await town.reserved(2)
    assert set(held(node)) == {one.id, two.id}
    ways = {str(RelayedAddress(s.id, s.address)) for s in (one, two)}
    assert set(node.reservations.addresses()) == ways
    assert set(node.changes[-1]) == ways
    node.reservations.start()
    counts = [s.relay.figures().reservations for s in (one, two, three)]
    assert counts == [1, 1, 0]
    await node.reservations.stop()
    assert node.changes[-1] == ()
    await until(lambda: not any(s.relay.figures().reservations for s in (one, two)))
    await node.reservations.stop()
    node.reservations.start()
    await until(lambda: len(held(node)) == 2)


async def test_links_that_came_through_a_sentinel_outlive_the_reservation(town: Town) -> None:
    await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    link = await one.to(two)
    await until(lambda: two.links.find(one.id))
    await two.reservations.stop()
    await one.says(link, 1, two)
    await two.reservations.close()
    await until(lambda: link.closed)
    await town.settled()


async def test_a_reservation_moves_at_once_when_its_sentinel_dies(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LOOK_S", 1000.0)
    first, second, third = [await town.sentinel() for _ in range(3)]
    source, target = town.hidden(), await town.reserved(2)
    link = await source.links.to(target.id, (str(RelayedAddress(first.id, first.address)),))
    await until(lambda: target.links.find(source.id))
    if town.sockets:
        await first.end()
    else:
        town.memory.kill(first.address)
    await until(lambda: link in source.ended)
    await until(lambda: target.links.find(source.id) is None)
    await until(lambda: held(target) == [second.id, third.id])
    again = await source.links.to(target.id, (str(RelayedAddress(third.id, third.address)),))
    assert again.relayed_through == third.id
    await source.says(again, 7, target)


async def test_a_link_that_broke_is_made_anew_at_once(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LOOK_S", 1000.0)
    sentinel = await town.sentinel()
    node = await town.reserved()
    for link in sentinel.node.links.linked()[node.id]:
        await link.close()
    await until(lambda: len(node.changes) == 3)
    assert [len(change) for change in node.changes] == [1, 0, 1]
    assert sentinel.relay.figures().reservations == 1


async def test_renewed_in_time_and_moved_when_the_sentinel_falls_silent(town: Town) -> None:
    desk, clock = Desk(Reserved(90)), HandClock()
    silent = await town.liar(desk)
    node = town.hidden(clock)
    node.known = [silent.candidate()]
    node.reservations.start()
    await until(lambda: held(node) == [silent.id])
    for turn in range(2, 5):
        clock.now += 29.9
        for _ in range(5):
            await asyncio.sleep(reservations.LOOK_S)
        assert desk.count(Reserve) == turn - 1
        clock.now += 0.1
        await until(lambda turn=turn: desk.count(Reserve) == turn)
        await until(lambda: node.reservations._plan.next_deadline(clock.now) == clock.now + 30)
    desk.answers = []
    one, two = await town.sentinel(), await town.sentinel()
    node.known += [Candidate(other.id, (other.address,)) for other in (one, two)]
    await until(lambda: held(node) == [silent.id, one.id])
    clock.now += 30
    await until(lambda: desk.count(Reserve) == 5)
    assert silent.id in held(node)
    clock.now += ANSWER_S
    await until(lambda: held(node) == [one.id, two.id])
    await until(lambda: desk.count(Release) == 1)


@pytest.mark.parametrize("answers", [(), (RelayRefused("busy"),), (Reserved(120),)])
async def test_one_that_refuses_or_takes_back_is_left_for_the_next(
    town: Town, answers: tuple[AnyMessage, ...]
) -> None:
    desk, clock = Desk(*answers), HandClock()
    bad, good = await town.liar(desk), await town.sentinel()
    node = town.hidden(clock)
    node.known = [bad.candidate()]
    node.reservations.start()
    await until(lambda: desk.count(Reserve) == 1)
    if answers == (Reserved(120),):
        await until(lambda: held(node) == [bad.id])
        assert desk.reserved_over is not None
        await tell(desk.reserved_over, RelayRefused("busy"))
        await until(lambda: not held(node) or desk.count(Reserve) > 1)
    node.known = [bad.candidate(), Candidate(good.id, (good.address,), bootstrap=True)]
    await until(lambda: good.id in held(node))


async def test_one_that_cannot_be_dialled_is_left_for_the_next(town: Town) -> None:
    good, node = await town.sentinel(), town.hidden()
    nowhere = Candidate(Identity(b"x" * 32).node, ("nowhere",), bootstrap=True)
    node.known = [nowhere, Candidate(good.id, (good.address,))]
    node.reservations.start()
    await until(lambda: held(node) == [good.id])


async def test_offers_that_nobody_may_make_are_passed_over(town: Town) -> None:
    desk = Desk()
    liar, node = await town.liar(desk), town.hidden()
    node.known = [liar.candidate()]
    node.reservations.start()
    await until(lambda: desk.count(Reserve) == 1)
    # Neither from a sentinel that has not reserved, nor by whoever has a link.
    await desk.offer(b"1" * 16, b"2" * 16)
    stranger = Desk()
    other = await town.liar(stranger)
    link = await node.links.dial(other.address)
    await link.send(Reserve())
    await until(lambda: stranger.reserved_over)
    await stranger.offer(b"3" * 16)
    await tell(desk.reserved_over, Reserved(120))
    await until(lambda: held(node) == [liar.id])
    await desk.offer(b"4" * 16)
    await until(lambda: desk.count(JoinCircuit))
    assert [one.circuit for one in desk.heard if isinstance(one, JoinCircuit)] == [b"4" * 16]
    assert not stranger.count(JoinCircuit)


async def offering(town: Town) -> tuple[Liar, Desk, Hidden]:
    """A sentinel by hand that never lets a circuit become ready, and a node that trusts it."""
    desk = Desk(Reserved(120))
    liar, node = await town.liar(desk), town.hidden()
    node.known = [liar.candidate()]
    node.reservations.start()
    await until(lambda: held(node) == [liar.id])
    return liar, desk, node


def declined(desk: Desk) -> list[bytes]:
    return [one.circuit for one in desk.heard if isinstance(one, DeclineCircuit)]


async def test_circuits_under_way_are_bounded(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "MAX_JOINS", 2)
    liar, desk, node = await offering(town)
    await desk.offer(*(bytes([number]) * 16 for number in range(5)))
    await until(lambda: len(declined(desk)) == 3)
    assert declined(desk) == [bytes([number]) * 16 for number in (2, 3, 4)]
    await until(lambda: desk.count(JoinCircuit) == 2)
    monkeypatch.setattr(reservations, "PATIENCE_S", 0.0)
    await desk.offer(b"a" * 16)
    await until(lambda: desk.count(JoinCircuit) == 3)
    # Reservation, and two circuits: the oldest had to go.
    await until(lambda: liar.serving == 3)
    assert len(node.reservations._joins) == 2
    await node.reservations.close()
    await until(lambda: liar.serving == 1)


async def test_relayed_links_are_bounded(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "MAX_RELAYED", 1)
    await town.sentinel()
    target, one, two = await town.reserved(), town.hidden(), town.hidden()
    link = await one.to(target)
    await until(lambda: target.links.find(one.id))
    with pytest.raises(Unreachable, match="did not get node"):
        await two.to(target)
    await one.says(link, 1, target)
    await link.close()
    await until(lambda: target.links.find(one.id) is None)
    await two.says(await two.to(target), 2, target)


async def test_a_circuit_that_fails_is_declined_and_nothing_else_happens(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "JOIN_S", 0.05)
    liar, desk, node = await offering(town)
    await desk.offer(b"1" * 16)
    await until(lambda: declined(desk) == [b"1" * 16])
    await until(lambda: liar.serving == 1)
    assert held(node) == [liar.id]
    assert not node.reservations._joins


async def test_a_reservation_never_hangs_on_a_relayed_link(town: Town) -> None:
    await town.sentinel()
    one, two = town.hidden(), await town.reserved()
    over: list[Link] = []

    async def grant(link: Link, _message: Reserve, _body: memoryview) -> None:
        over.append(link)
        await link.send(Reserved(120))

    two.links.handle(Reserve, grant)
    listener = await two.base.listen(town.place, 0, two.links.accept)
    town.stack.push_async_callback(listener.close)
    assert (await one.to(two)).relayed_through is not None
    one.known = [Candidate(two.id, (listener.address,))]
    one.reservations.start()
    await until(lambda: held(one) == [two.id])
    assert [link.relayed_through for link in over] == [None]


class Guest:
    """A whole node that refuses inbound: where it listens it tells nobody."""

    def __init__(self, town: Town) -> None:
        identity = town.identity()
        base = town.transport(identity)
        transport = CircuitTransport(base, identity.node)
        rng = random.Random(identity.node)
        self.town = town
        self.node = Node(identity, transport, SystemClock(), rng, role="client", version="test")
        transport.addresses = self.node.sentinel_addresses
        self.reservations = Reservations(self.node, base, self.candidates, rng, self.advertise)

    def candidates(self) -> list[Candidate]:
        return sentinels(self.node, self.node.id, self.node.discovery.reached())

    def advertise(self) -> None:
        self.node.advertise(self.reservations.addresses())

    def over(self, kind: type) -> list[NodeId | None]:
        """Through which sentinels gossip of a kind comes from now on."""
        through: list[NodeId | None] = []
        real = self.node.links._handlers[kind]

        async def hear(link: Link, message: AnyMessage, body: memoryview) -> None:
            through.append(link.relayed_through)
            await real(link, message, body)

        self.node.links.handle(kind, hear)
        return through

    async def start(self) -> None:
        await self.node.start(self.town.place, 0, [self.town.sentinels[0].address], ())
        self.town.stack.push_async_callback(self.reservations.close)
        self.town.stack.push_async_callback(self.node.stop)
        self.town.stack.push_async_callback(self.reservations.stop)
        self.reservations.start()


async def test_whole_nodes_that_nobody_can_dial_gossip_through_a_sentinel(town: Town) -> None:
    sentinel = await town.sentinel()
    one, two = Guest(town), Guest(town)
    await one.start()
    await two.start()
    way = str(RelayedAddress(sentinel.id, sentinel.address))
    await until(lambda: one.node.addresses(two.node.id) == (way,))
    await until(lambda: two.node.addresses(one.node.id) == (way,))
    link = await one.node.links.to(two.node.id, one.node.addresses(two.node.id))
    assert link.relayed_through == sentinel.id
    asked, told = one.over(Push), two.over(Pull)
    one.node.introduce(two.node.id)
    await until(lambda: sentinel.id in told)
    await until(lambda: sentinel.id in asked)
