"""Whoever asks, opens, or fails without an end: it waits itself, and keeps nothing from others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import admission
from diffuse_core.domain.audit_messages import Mirror, MirrorReady, Spots, TellSpots
from diffuse_core.domain.messages import (
    CloseSession,
    ForwardTokens,
    Reroute,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    WatchSession,
)
from diffuse_core.services import next_watch, stage, stage_pace, stage_run, stage_tidings
from diffuse_core.services.next_watch import NextWatch
from diffuse_core.services.stage_pace import Pace
from diffuse_core.services.stage_tidings import Tidings
from diffuse_core.services.tasks import TaskOwner
from tests.services.intruder import SESSION, Intruder
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.messages import AnyMessage
    from tests.services.cluster import Cluster, Host

FEW = 16.0
"""Short questions that may be asked at once in these tests, and no more for a long while."""


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await YIELD(0)


YIELD = asyncio.sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio, "sleep", made.sleep)
    return made


async def test_who_asks_too_often_waits_and_others_do_not(clock: Clock) -> None:
    pace = Pace(clock)
    for _ in range(int(stage_pace.BURST)):
        await pace.turn("one")
    assert clock.now == 50.0
    for _ in range(100):
        await pace.turn("one")
    waited = clock.now - 50.0
    assert waited == pytest.approx(100 / stage_pace.PER_S, rel=0.05)
    await pace.turn("another")
    assert clock.now == 50.0 + waited
    # What costs more than anybody may have costs all.
    await pace.turn("another", 10 * stage_pace.BURST)


async def test_links_of_one_node_share_what_it_may_ask(clock: Clock) -> None:
    pace = Pace(clock)
    await pace.turn("one", stage_pace.BURST)
    await asyncio.gather(*(pace.turn("one", 10) for _ in range(20)))
    assert clock.now - 50.0 >= 0.95 * 200 / stage_pace.PER_S


def first_of(pair: Cluster) -> Host:
    return next(host for host in pair.hosts if host.service.slice.start == 0)


FLOODS: dict[str, Callable[[Intruder, Host], AnyMessage]] = {
    "watching": lambda *_: WatchSession(SESSION),
    "watching nothing": lambda *_: WatchSession(b"?" * 16),
    "numbers": lambda *_: TellSpots(SESSION, 0, 512, tuple(range(16)), given=True),
    "mirrors": lambda i, _: Mirror(SESSION, b"m" * 16, i.id, 5),
    "routes": lambda i, host: Reroute(b"?" * 16, 1, i.opening(host).route, 0),
    "openings": lambda i, host: i.opening(host),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_waits_at_its_own_link(
    pair: Cluster, running: bytes, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its questions are answered one by one as their time comes; others' at once."""
    intruder, host = Intruder(pair), first_of(pair)
    told: list[AnyMessage] = []

    async def hear(_link: object, message: AnyMessage, _body: memoryview) -> None:
        told.append(message)

    link = await intruder.open(host)
    for kind in (SessionAlive, SessionFailed, SessionRefused, Spots, MirrorReady):
        intruder.links.handle(kind, hear)
    host.service.stage._pace._allowed = stage_pace.Allowances(FEW, 0.001)
    await send_all(link, FLOODS[name](intruder, host), 40)
    bystander = Intruder(pair)
    for _ in range(3):
        await bystander.heard(host)
    assert 1 <= len(told) <= FEW
    assert not link.closed
    pair.memory.cut(intruder.id, host.id)
    host.service.stage._pace._allowed = stage_pace.Allowances(1e9, 1e9)
    stage = host.service.stage
    for run in [run for run in stage._runs.values() if run.client.remote == intruder.id]:
        stage._forget(run)


async def send_all(link: object, message: AnyMessage, count: int) -> None:
    for _ in range(count):
        await link.send(message)


async def test_rows_are_not_counted(pair: Cluster, running: bytes) -> None:
    """Else a client could have a stage send so many that others of its rows wait."""
    intruder, host = Intruder(pair), first_of(pair)
    link = await intruder.open(host)
    await intruder.heard(host)
    host.service.stage._pace._allowed = stage_pace.Allowances(FEW, 0.001)
    for position in range(5):
        await link.send(ForwardTokens(SESSION, position, (1,)))
    for _ in range(40):
        await link.send(ForwardTokens(b"?" * 16, 0, (1,)))
    await link.send(CloseSession(SESSION))
    await until(lambda: host.service.stage.sessions == 1)


async def test_one_client_opens_one_session_at_a_time_over_however_many_links(
    pair: Cluster,
) -> None:
    intruder, host = Intruder(pair), first_of(pair)
    await intruder.open(host)
    stage = host.service.stage
    link = next(iter(stage._runs.values())).client
    most: list[int] = []
    executor, loop = host.executors[-1], asyncio.get_running_loop()
    plain = executor.open

    def count() -> None:
        most.append([task.get_name() for task in stage._tasks._tasks].count("stage:open"))

    def noted(*given: object) -> None:
        loop.call_soon_threadsafe(count)
        plain(*given)

    executor.open = noted
    openings = [intruder.opening(host, session=bytes([at]) * 16) for at in range(12)]
    # As many readers hand them over at once.
    await asyncio.gather(*(stage._on_open(link, one, memoryview(b"")) for one in openings))
    await until(lambda: len(most) == len(openings))
    assert max(most) <= 1
    pair.memory.cut(intruder.id, host.id)
    for run in list(stage._runs.values()):
        stage._forget(run)
    await host.idle()


async def test_sessions_of_which_no_use_is_made_give_way(
    pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_SESSIONS", 3)
    idler, busy, host = Intruder(pair), Intruder(pair), first_of(pair)
    stage = host.service.stage
    links = [await idler.open(host, session=bytes([at]) * 16) for at in range(3)]
    await (await busy.to(host)).send(busy.opening(host))
    assert (await busy.answer()).reason == "busy"
    monkeypatch.setattr(stage_run, "IDLE_WANTED_S", 0.0)
    # Not for what there is no room for in any case.
    stage.kv_budget, budget = 10, stage.kv_budget
    await (await busy.to(host)).send(busy.opening(host))
    assert (await busy.answer()).reason == "memory"
    assert stage.sessions == 3
    stage.kv_budget = budget
    await (await busy.to(host)).send(busy.opening(host))
    assert isinstance(await busy.answer(), SessionOpened)
    failed = await idler.answer()
    assert isinstance(failed, SessionFailed)
    # The one that nothing was done with for longest.
    assert failed.session == bytes(16)
    assert (failed.node, failed.reason, failed.kept) == (host.id, "lost", False)
    assert stage.sessions == 3
    for at in range(3):
        await links[0].send(CloseSession(bytes([at]) * 16))
    await (await busy.to(host)).send(CloseSession(SESSION))
    await host.idle()


class Deaf:
    """A link whose other end reads nothing, until it is let."""

    relayed_through = b"s" * 32
    closed = False

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.heard = 0
        self.sent: list[AnyMessage] = []

    async def send(self, message: AnyMessage) -> None:
        await self.reads.wait()
        self.sent.append(message)

    async def close(self) -> None:
        self.closed = True


async def test_who_reads_nothing_is_told_only_so_much() -> None:
    tasks, link, other = TaskOwner("test"), Deaf(), Deaf()
    tidings = Tidings(tasks)
    failures = [
        SessionFailed(SESSION, b"n" * 32, "lost", str(at)) for at in range(3 * stage_tidings.MOST)
    ]
    for failed in failures:
        tidings.tell(link, failed)
    assert len(tasks._tasks) == 1
    other.reads.set()
    tidings.tell(other, failures[0])
    await until(lambda: other.sent == [failures[0]])
    link.reads.set()
    await tidings.told()
    # The first was on its way, or not; the last ones count.
    assert link.sent[-stage_tidings.MOST :] == failures[-stage_tidings.MOST :]
    assert len(link.sent) <= stage_tidings.MOST + 1
    assert not tidings._waiting
    await tasks.close()


@pytest.fixture
def sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are looked at for overdue ones all the time."""
    monkeypatch.setattr(stage, "SWEEP_S", 0.001)


@pytest.mark.usefixtures("sweeping")
async def test_what_a_failed_session_held_is_let_go_of_though_its_client_reads_nothing(
    pair: Cluster,
) -> None:
    intruder, host = Intruder(pair), first_of(pair)
    link = await intruder.open(host)
    (run,) = host.service.stage._runs.values()
    deaf = Deaf()
    run.outlet.client = deaf
    gone = weakref.ref(run.outlet)
    looked: list[float] = []
    run.overdue = looked.append
    await until(lambda: looked)
    host.service.stage._fail(run, host.id, "lost", "for a test")
    del run
    await host.idle()
    await until(lambda: gc.collect() >= 0 and gone() is None)
    assert len(host.service.stage._tidings._waiting) == 1
    deaf.reads.set()
    await until(lambda: len(deaf.sent) == 1)
    await link.close()


async def test_a_next_stage_is_asked_seldom_and_by_one_task(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Outlet:
        next = Deaf()

    class Links:
        doubted: list[object] = []  # noqa: RUF012

        def doubt(self, link: object) -> None:
            self.doubted.append(link)

    tasks, watch, links = TaskOwner("test"), NextWatch(b"n" * 16, Outlet(), clock), Links()
    link = Outlet.next
    for _ in range(50):
        watch.look(links, tasks)
        await YIELD(0)
    assert len(tasks._tasks) == 1
    link.reads.set()
    while tasks._tasks:
        await YIELD(0)
    for _ in range(50):
        # It answers at once, and is asked no sooner for that.
        link.heard += 1
        watch.look(links, tasks)
        await YIELD(0)
    assert len(link.sent) == 1
    clock.now += next_watch.ASK_S
    watch.look(links, tasks)
    await YIELD(0)
    assert len(link.sent) == 2
    clock.now += next_watch.ANSWER_S
    watch.look(links, tasks)
    while tasks._tasks:
        await YIELD(0)
    assert links.doubted == [link]
    assert link.closed
    await tasks.close()
