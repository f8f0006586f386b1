"""A Host that moves or stops lets its Sessions finish, takes none, and does not wait for ever."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import liveness
from diffuse_core.domain.slices import Slice, replicas_per_layer
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import Refused, StagesLost
from diffuse_core.services import ending, feed, placement, run
from tests.services.cluster import PLENTY
from tests.services.intruder import CREDITS, Intruder
from tests.services.tiny_model import LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from diffuse_core.services.node import Node
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

COUNT = CREDITS + 30


@pytest.fixture(autouse=True)
def few_credits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Session whose client does not read rests soon, and stays."""
    monkeypatch.setattr(run, "CREDITS", CREDITS)
    monkeypatch.setattr(liveness, "PROBE_INTERVAL_S", 0.1)
    monkeypatch.setattr(liveness, "PROBE_TIMEOUT_S", 0.05)


def ask() -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(13), max_tokens=COUNT, ignore_eos=True)


async def begun(cluster: Cluster) -> AsyncGenerator:
    """A generation that has given its first token; not read on, it rests."""
    stream = (await cluster.client()).generate(ask())
    cluster.stack.push_async_callback(stream.aclose)
    await anext(event async for event in stream if isinstance(event, TextDelta))
    return stream


async def tokens(stream: AsyncGenerator) -> int:
    """How many tokens a generation gave in all, read to its end."""
    ends = [event async for event in stream if isinstance(event, Finished)]
    return ends[0].usage.completion_tokens


async def weakened(cluster: Cluster) -> tuple[list[Host], list[AsyncGenerator]]:
    """Three Hosts of one half, each with a resting Session, and one left of two of the other."""
    hosts = [await cluster.host(5) for _ in range(5)]
    halves = {part: [h for h in hosts if h.service.slice == part] for part in (LOW, HIGH)}
    many, few = sorted(halves.values(), key=len, reverse=True)
    assert (len(many), len(few)) == (3, 2)
    few[0].service.stage.kv_budget = 0
    streams = []
    while any(host.service.stage.sessions == 0 for host in many):
        streams.append(await begun(cluster))
        for host in many:
            if host.service.stage.sessions:
                host.service.stage.kv_budget = 0
    cluster.crash(few[0])
    return many, streams


def seen_leaving(watcher: Node) -> bool:
    """Whether a node knows of a Host that leaves."""
    held = (member.record.holding for member in watcher.members())
    return any(one is not None and one.state == "leaving" for one in held)


LOW, HIGH = Slice(0, 5), Slice(5, 10)


@pytest.mark.slow
async def test_a_host_that_moves_finishes_its_sessions_first(
    cluster: Cluster, tiny: TinyModel
) -> None:
    many, streams = await weakened(cluster)
    old = many[0].service.slice
    await until(lambda: any(host.service.where.text == "finishing its sessions" for host in many))
    (mover,) = (host for host in many if host.service.where.text == "finishing its sessions")
    # Nobody is sent here any more, and who comes all the same is refused.
    intruder = Intruder(cluster)
    link = await intruder.to(mover)
    await link.send(intruder.opening(mover))
    answer = await intruder.answer()
    assert (answer.reason, answer.detail) == ("leaving", "this host is leaving")
    assert mover.service.slice == old
    assert mover.service.stage.sessions == 1
    for stream in streams:
        assert await tokens(stream) == COUNT
    await until(lambda: mover.service.slice not in (None, old) and mover.service.ready.is_set())
    assert sum(len(host.executors) for host in many) == 4
    left = [host for host in cluster.hosts if host.node in cluster.nodes]
    assert min(replicas_per_layer(LAYERS, [host.service.slice for host in left])) == 2
    for host in left:
        host.service.stage.kv_budget = PLENTY
    said = (await (await cluster.client()).whole(ask()))[1]
    assert said == tiny.says(ids(13), COUNT, ignore_eos=True)


@pytest.mark.slow
async def test_a_move_does_not_wait_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "DRAIN_S", 0.2)
    many, streams = await weakened(cluster)
    await until(lambda: sum(len(host.executors) for host in many) == 4)
    ends = await asyncio.gather(*map(tokens, streams), return_exceptions=True)
    lost = [end for end in ends if isinstance(end, StagesLost | Refused)]
    assert len(lost) == 1
    assert "the host is leaving" in str(lost[0])
    assert ends.count(COUNT) == 2


async def test_a_host_that_stops_lets_its_sessions_finish(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 60.0)
    host = await cluster.host()
    stream = await begun(cluster)
    leaving = asyncio.create_task(host.service.leave())
    watcher = cluster.nodes[0]
    await until(lambda: seen_leaving(watcher))
    assert not leaving.done()
    assert await tokens(stream) == COUNT
    async with asyncio.timeout(10):
        await leaving
        await host.life
    assert host.service.stage is None


async def test_but_not_for_longer_than_some_seconds(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 0.05)
    host = await cluster.host()
    async with aclosing(await begun(cluster)) as stream:
        async with asyncio.timeout(10):
            await host.service.leave()
            await host.life
        with pytest.raises(StagesLost, match="the host is leaving"):
            await tokens(stream)


async def test_the_owner_may_give_sessions_longer(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 0.05)
    monkeypatch.setattr(feed, "TICK_S", 0.02)
    host = await cluster.host()
    streams = [await begun(cluster), await begun(cluster)]
    owner = await cluster.attach(host)
    over = asyncio.create_task(host.ending.over(asyncio.Event()))
    await owner.stop_node(600.0)
    async with aclosing(owner.updates()) as updates:
        await stage_of(updates, "leaving: 2 sessions left")
        await until(lambda: seen_leaving(cluster.nodes[0]))
        intruder = Intruder(cluster)
        link = await intruder.to(host)
        await link.send(intruder.opening(host))
        assert (await intruder.answer()).reason == "leaving"
        assert await tokens(streams[0]) == COUNT
        await stage_of(updates, "leaving: 1 session left")
        # Far longer than a Host gives when nobody says so.
        await asyncio.sleep(0.2)
        assert not over.done()
        assert await tokens(streams[1]) == COUNT
        async with asyncio.timeout(10):
            await over
            await host.life
    assert host.service.stage is None
    assert host.service.phase_text() == "leaving"


async def test_who_asks_for_the_earliest_end_is_heeded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (placement, ending):
        monkeypatch.setattr(module, "STOP_S", 60.0)
    host = await cluster.host()
    signal = asyncio.Event()
    async with aclosing(await begun(cluster)) as stream:
        over = asyncio.create_task(host.ending.over(signal))
        owner = await cluster.attach(host)
        await owner.stop_node(600.0)
        await until(host.ending.asked.is_set)
        await owner.stop_node(0.0)
        await owner.stop_node(600.0)
        async with asyncio.timeout(10):
            await over
            await host.life
        with pytest.raises(StagesLost, match="the host is leaving"):
            await tokens(stream)


async def test_a_signal_shortens_a_drain(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 0.05)
    host = await cluster.host()
    signal = asyncio.Event()
    async with aclosing(await begun(cluster)):
        over = asyncio.create_task(host.ending.over(signal))
        host.ending.ask(600.0)
        await until(lambda: host.service.phase_text() == "leaving: 1 session left")
        signal.set()
        async with asyncio.timeout(10):
            await over
            await host.life


async def stage_of(updates: AsyncGenerator, text: str) -> None:
    """Read the owner's feed until it says so."""
    async with asyncio.timeout(5):
        async for update in updates:
            if update.telemetry.stage == text:
                return


async def test_a_stage_may_be_closed_by_two(cluster: Cluster) -> None:
    host = await cluster.host()
    stage = host.service.stage
    assert stage is not None
    await asyncio.gather(stage.close(), stage.close())


async def test_a_host_without_sessions_stops_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 60.0)
    host = await cluster.host()
    async with asyncio.timeout(10):
        await host.service.leave()
        await host.life
    assert host.service.stage is None
    assert host.service.slice is None
