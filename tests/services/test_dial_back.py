"""A sentinel dials whoever asks, where they ask from, and not too often."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relay_messages import AskDialBack, DialledBack
from diffuse_core.errors import Unreachable
from diffuse_core.services import dial_back
from diffuse_core.services.dial_back import DialBack
from diffuse_core.services.links import Links
from tests.services.reached import Reached, Walled
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Carrier, Channel, Listener

PORT = 9440
OUTSIDE = "8.8.4.4"


class Clock(SystemClock):
    """One that the test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Caller:
    """A channel that comes from where the test likes, and what came back over it."""

    def __init__(self, number: int, seen: str, through: NodeId | None = None) -> None:
        self.remote = Identity(number.to_bytes(32, "big")).node
        self.remote_address = seen
        self.relayed_through = through
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: list[bytes] = []

    async def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    async def receive(self) -> bytes:
        return await self._inbox.get()

    async def close(self) -> None:
        pass


class Line:
    """A transport that dials nowhere, and notes where it would have."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, NodeId | None]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.answers = True

    async def dial(self, address: str, expected: NodeId | None, timeout: float) -> Channel:  # noqa: ASYNC109
        assert timeout <= dial_back.DIAL_S
        self.dialled.append((address, expected))
        await self.go_on.wait()
        if not self.answers:
            raise Unreachable(f"nothing listens at {address}")
        return Caller(1, address)

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> Listener:
        raise NotImplementedError

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109
        *,
        dialled: bool,
    ) -> Channel:
        raise NotImplementedError


class Desk:
    """The answering half of a sentinel, and callers from everywhere."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.line = Line()
        self.clock = Clock()
        self.links = Links(self.line)
        self.back = DialBack(self.links, self.line, self.clock)
        self.nonces = itertools.count(1)
        self.answers: dict[int, DialledBack] = {}
        stack.push_async_callback(self.links.close)
        stack.push_async_callback(self.back.close)

    async def ask(
        self,
        number: int,
        seen: str = f"{OUTSIDE}:5",
        *,
        port: int = PORT,
        dialled: bool = False,
        through: NodeId | None = None,
    ) -> int:
        """Ask as node `number`; returns the nonce."""
        nonce = next(self.nonces)
        link = _Link(Caller(number, seen, through), dialled=dialled)
        link.answers = self.answers
        await self.back._on_ask(link, AskDialBack(nonce, port), memoryview(b""))
        return nonce

    async def answer(self, number: int, *given: str, **more: object) -> DialledBack:
        """Ask, and wait for the answer."""
        nonce = await self.ask(number, *given, **more)
        await until(lambda: nonce in self.answers)
        return self.answers[nonce]


class _Link:
    """What the handler sees of a link."""

    def __init__(self, caller: Caller, *, dialled: bool) -> None:
        self.remote = caller.remote
        self.remote_address = caller.remote_address
        self.relayed_through = caller.relayed_through
        self.dialled = dialled
        self.answers: dict[int, DialledBack] = {}

    async def send(self, message: DialledBack) -> None:
        self.answers[message.nonce] = message


@pytest.fixture
def desk(stack: AsyncExitStack) -> Desk:
    return Desk(stack)


async def test_who_asks_is_dialled_where_they_are_seen(desk: Desk) -> None:
    told = await desk.answer(1, port=1234)
    assert told == DialledBack(1, reached=True, address=f"{OUTSIDE}:1234")
    assert desk.line.dialled == [(f"{OUTSIDE}:1234", Identity((1).to_bytes(32, "big")).node)]


async def test_who_does_not_answer_there_is_told_where(desk: Desk) -> None:
    desk.line.answers = False
    told = await desk.answer(1)
    assert (told.reached, told.address) == (False, f"{OUTSIDE}:{PORT}")


@pytest.mark.parametrize(
    "more",
    [
        {"seen": "169.254.169.254:5"},
        {"seen": "[::ffff:224.0.0.1]:5"},
        {"seen": "internal.example.org:5"},
        {"seen": "mem:3"},
        {"dialled": True},
        {"through": Identity(b"s" * 32).node},
    ],
)
async def test_nobody_else_is_dialled(desk: Desk, more: dict) -> None:
    assert await desk.answer(1, **more) == DialledBack(1, reached=False)
    assert desk.line.dialled == []


async def test_one_node_is_dialled_now_and_then(desk: Desk) -> None:
    for _ in range(dial_back.NODE_BURST):
        assert (await desk.answer(1)).reached
    assert await desk.answer(1) == DialledBack(dial_back.NODE_BURST + 1, reached=False)
    assert (await desk.answer(2)).reached
    desk.clock.now += 1 / dial_back.NODE_PER_S
    assert (await desk.answer(1)).reached
    assert not (await desk.answer(1)).reached


@pytest.mark.parametrize(
    ("one", "other"),
    [(f"{OUTSIDE}:{{}}", "8.8.4.5:1"), ("[2a00:1450::{}]:5", "[2a00:1450:0:1::1]:5")],
)
async def test_one_place_makes_up_as_many_nodes_as_it_likes(
    desk: Desk, one: str, other: str
) -> None:
    for number in range(1, dial_back.PLACE_BURST + 1):
        assert (await desk.answer(number, one.format(number))).reached
    assert not (await desk.answer(900, one.format(900))).reached
    assert len(desk.line.dialled) == dial_back.PLACE_BURST
    assert (await desk.answer(901, other)).reached


async def test_all_the_world_gets_so_much_and_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    for number in range(1, dial_back.TOTAL_BURST + 1):
        assert (await desk.answer(number, f"9.{number}.0.{rng.randrange(1, 9)}:5")).reached
    assert not (await desk.answer(900, "11.1.1.1:5")).reached
    desk.clock.now += 1
    assert (await desk.answer(901, "11.1.1.2:5")).reached


async def test_so_many_are_dialled_at_a_time(desk: Desk) -> None:
    desk.line.go_on.clear()
    first = await desk.ask(1)
    assert await desk.answer(1) == DialledBack(2, reached=False)
    for number in range(2, dial_back.MAX_AT_A_TIME + 1):
        await desk.ask(number)
    assert not (await desk.answer(900, "9.9.9.9:5")).reached
    await until(lambda: len(desk.line.dialled) == dial_back.MAX_AT_A_TIME)
    desk.line.go_on.set()
    await until(lambda: first in desk.answers)
    assert desk.answers[first].reached
    await until(lambda: not desk.back._dialling)
    assert (await desk.answer(901, "9.9.9.9:5")).reached


async def test_nothing_is_left_of_it_at_the_end(desk: Desk) -> None:
    desk.line.go_on.clear()
    await desk.ask(1)
    await until(lambda: desk.line.dialled)
    await desk.back.close()
    assert not desk.back._dialling
    await desk.ask(2)
    assert not desk.back._dialling


async def test_over_sockets_a_sentinel_finds_out(stack: AsyncExitStack) -> None:
    town = Reached(stack)
    sentinel = await town.sentinel()
    open_, walled = await town.start(mode="never"), await town.start(mode="never", kind=Walled)
    for member, reached in ((open_, True), (walled, False)):
        port = int(member.address.rpartition(":")[2])
        told: list[DialledBack] = []
        came: list[bool] = []
        await member.reachability.close()

        async def hear(_link: object, message: DialledBack, _body: object) -> None:
            told.append(message)  # noqa: B023  (this turn's list)

        member.node.links.handle(DialledBack, hear)
        member.node.links.on_met(lambda link, came=came: came.append(not link.dialled))
        link = await member.node.links.dial(sentinel.address, sentinel.node.id)
        await link.send(AskDialBack(7, port))
        await until(lambda told=told: told)
        assert told == [DialledBack(7, reached, member.address)]
        if reached:
            await until(lambda came=came: True in came)
