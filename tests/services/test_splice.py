"""The splice: pace, turns, and one frame in hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import QUEUE_FRAMES, MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.services.splice import BURST_S, MAX_PACED, Pace, Turns, splice
from tests.fuzz.virtual_loop import VirtualClock, VirtualLoop
from tests.services.relaying import ended, relay_tasks
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel

PIECE = bytes(MAX_PIECE_BYTES)
FAST = 1e12


def node(number: int) -> NodeId:
    return Identity(bytes([number]) * 32).node


def pace(node_bytes_per_s: float = FAST, total_bytes_per_s: float = FAST) -> Pace:
    limits = RelayLimits(node_bytes_per_s=node_bytes_per_s, total_bytes_per_s=total_bytes_per_s)
    return Pace(limits, SystemClock())


class Wires:
    """Channels to somebody in the middle, who has their other ends."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.memory = MemoryNetwork()
        self.middle = self.memory.transport(node(200))
        self.came: asyncio.Queue[Channel] = asyncio.Queue()

    async def start(self) -> Wires:
        listener = await self.middle.listen("mem", 1, self._accept)
        self.stack.push_async_callback(listener.close)
        return self

    async def _accept(self, channel: Channel) -> None:
        await self.came.put(channel)
        await asyncio.Event().wait()

    async def channel(self, number: int) -> tuple[Channel, Channel]:
        """The end of a node, and the one in the middle."""
        near = await self.memory.transport(node(number)).dial("mem:1", None, 1.0)
        return near, await self.came.get()

    async def spliced(
        self, one: int, other: int, at: Pace, stalled_s: float = 5.0
    ) -> tuple[Channel, Channel, asyncio.Task[str]]:
        near, source = await self.channel(one)
        far, target = await self.channel(other)
        over = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            splice(
                source,
                target,
                at.toll(node(one), node(other)),
                over,
                first=asyncio.create_task(source.receive()),
                stalled_s=stalled_s,
            )
        )
        task.over = over
        self.stack.push_async_callback(asyncio.wait, [task])
        self.stack.callback(task.cancel)
        return near, far, task


@pytest.fixture
async def wires(stack: AsyncExitStack) -> Wires:
    return await Wires(stack).start()


async def test_turns_come_in_the_order_they_were_asked_for() -> None:
    turns = Turns(2e6, SystemClock())
    order: list[int] = []

    async def take(who: int, amount: int) -> None:
        await turns.take(node(1), amount)
        order.append(who)

    # A small one that would fit does not pass a large one that has to wait.
    await asyncio.gather(*(take(n, 200_000 if n % 2 else 1) for n in range(8)))
    assert order == list(range(8))


def test_a_node_with_many_circuits_gets_no_more_than_one_with_one() -> None:
    """In virtual time: what nobody takes while a machine stands still is saved for a burst."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        passed = runner.run(_passed_in_competition())
    # Neither does the size of the pieces matter.
    assert passed[1] <= passed[3] + 2 * MAX_PIECE_BYTES
    assert passed[2] >= passed[3] - 2 * MAX_PIECE_BYTES


async def _passed_in_competition() -> Counter[int]:
    """What passed over many circuits of node 1, one each of 2 and 3; small pieces of 2."""
    turns = Turns(8e6, VirtualClock(asyncio.get_running_loop()))
    passed: Counter[int] = Counter()

    async def circuit(who: int, amount: int) -> None:
        while passed[3] < 10 * MAX_PIECE_BYTES:
            await turns.take(node(who), amount)
            passed[who] += 0 if passed[3] >= 10 * MAX_PIECE_BYTES else amount

    # What was saved is gone before they come.
    for _ in range(int(8e6 * BURST_S / MAX_PIECE_BYTES)):
        await turns.take(node(4), MAX_PIECE_BYTES)
    many = (circuit(1, MAX_PIECE_BYTES) for _ in range(15))
    async with asyncio.timeout(10):
        await asyncio.gather(*many, circuit(2, 20_000), circuit(3, MAX_PIECE_BYTES))
    return passed


async def test_a_short_piece_of_a_quiet_node_passes_before_long_ones() -> None:
    turns = Turns(2e6, SystemClock())
    order: list[int] = []

    async def take(who: int, amount: int) -> None:
        await turns.take(node(who), amount)
        order.append(who)

    # The first ones use up what was saved.
    pieces = [(1, MAX_PIECE_BYTES)] * 9 + [(2, MAX_PIECE_BYTES), (3, 100)]
    await asyncio.gather(*(take(*piece) for piece in pieces))
    assert order == [1] * 7 + [3, 1, 2, 1]


async def test_what_is_remembered_of_nodes_is_bounded() -> None:
    turns = Turns(FAST, SystemClock())
    for number in range(MAX_PACED + 50):
        await turns.take(number.to_bytes(32), 1)
    assert len(turns._due) == MAX_PACED
    assert not turns._waiting


async def test_no_more_passes_than_the_pace_and_a_burst() -> None:
    clock = SystemClock()
    turns = Turns(4e6, clock)
    started, taken = clock.monotonic(), 0
    while clock.monotonic() - started < 0.3:
        await turns.take(node(1), MAX_PIECE_BYTES)
        taken += MAX_PIECE_BYTES
    elapsed = clock.monotonic() - started
    assert taken <= 4e6 * (BURST_S + elapsed) + 1
    assert taken >= 4e6 * 0.5 * elapsed


async def test_the_slowest_pace_lets_a_whole_piece_pass() -> None:
    await Turns(1.0, SystemClock()).take(node(1), MAX_PIECE_BYTES)


async def test_a_wait_that_is_given_up_holds_up_nobody() -> None:
    turns = Turns(1e6, SystemClock())
    await turns.take(node(1), 250_000)
    given_up = asyncio.create_task(turns.take(node(1), 250_000))
    after = asyncio.create_task(turns.take(node(1), 1))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(10):
        await after
    assert given_up.cancelled() or not given_up.done()


def test_the_pace_of_a_node_is_one_whatever_its_circuits() -> None:
    at = pace()
    for number in range(3):
        at.toll(node(1), node(2 + number))
    assert len(at._nodes) == 4
    for number in range(MAX_PACED + 50):
        at.toll(node(1), number.to_bytes(32))
    assert len(at._nodes) == MAX_PACED
    assert node(1) in at._nodes
    assert node(2) not in at._nodes


async def test_a_greedy_circuit_starves_no_other(wires: Wires) -> None:
    """All that have something to send get the same, however much they push."""
    at = pace(total_bytes_per_s=8e6)
    came: Counter[int] = Counter()
    enough = asyncio.Event()

    async def push(channel: Channel) -> None:
        while True:
            await channel.send(PIECE)

    async def count(number: int, channel: Channel) -> None:
        while True:
            await channel.receive()
            came[number] += 1
            if came[3] >= 10:
                enough.set()

    tasks = []
    for number in range(4):
        near, far, _ = await wires.spliced(2 * number + 1, 2 * number + 2, at)
        tasks.append(asyncio.create_task(count(number, far)))
        if number < 3:
            tasks.append(asyncio.create_task(push(near)))
            # They are at it before the last one comes.
            await until(lambda number=number: came[number])
        else:
            tasks.append(asyncio.create_task(push(near)))
            before = came.copy()
    async with asyncio.timeout(10):
        await enough.wait()
    for task in tasks:
        task.cancel()
    assert all(came[number] - before[number] <= 12 for number in range(3))


async def test_a_greedy_node_is_held_to_its_own_pace(wires: Wires) -> None:
    at = pace(node_bytes_per_s=1e6)
    near, far, _ = await wires.spliced(1, 2, at)
    pushing = asyncio.create_task(push_all(near, 100))
    calm, quiet, _ = await wires.spliced(3, 4, at)
    for _ in range(50):
        await calm.send(b"small")
        assert await quiet.receive() == b"small"
    assert not pushing.done()
    pushing.cancel()
    assert await far.receive() == PIECE


async def push_all(channel: Channel, count: int) -> None:
    for _ in range(count):
        await channel.send(PIECE)


async def test_one_frame_is_in_hand_when_the_other_end_does_not_read(wires: Wires) -> None:
    near, far, _ = await wires.spliced(1, 2, pace())
    sent = 0

    async def push() -> None:
        nonlocal sent
        while True:
            await near.send(PIECE)
            sent += 1

    pushing = asyncio.create_task(push())
    await until(lambda: sent == 2 * QUEUE_FRAMES + 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert sent == 2 * QUEUE_FRAMES + 1
    await far.receive()
    await until(lambda: sent == 2 * QUEUE_FRAMES + 2)
    pushing.cancel()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("close", "one end closed its channel or was lost"),
        ("break_off", "one end closed its channel or was lost"),
        ("large", "one end sent more at once than a piece holds"),
        ("stall", "one end did not read for 0.05 s"),
        ("over", "it was ended here"),
    ],
)
async def test_why_it_ended_is_told_and_nothing_runs_on(wires: Wires, what: str, why: str) -> None:
    near, far, task = await wires.spliced(1, 2, pace(), stalled_s=0.05)
    if what == "close":
        await far.close()
    elif what == "break_off":
        near.break_off()
    elif what == "large":
        await far.send(PIECE + b"!")
    elif what == "over":
        task.over.set_result(None)
    else:
        pushing = asyncio.create_task(push_all(near, 1000))
    async with asyncio.timeout(5):
        assert await task == why
    assert not relay_tasks()
    if what == "stall":
        pushing.cancel()


async def test_a_splice_that_is_cancelled_leaves_nothing(wires: Wires) -> None:
    near, far, task = await wires.spliced(1, 2, pace())
    await near.send(b"on the way")
    assert await far.receive() == b"on the way"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not relay_tasks()
    await near.close()
    assert await ended(near)
