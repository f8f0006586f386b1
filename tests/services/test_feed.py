"""The owner's feed: updates, generations and stop for the owner, nothing for anybody else."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.owner_messages import CancelGenerate, Update
from diffuse_core.domain.view import (
    Failed,
    Finished,
    GenerateRequest,
    RouteChosen,
    TextDelta,
)
from diffuse_core.errors import ChannelClosed, Refused
from diffuse_core.services import attachment, feed
from tests.services.intruder import Intruder
from tests.services.tiny_model import LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.model_ports import StageResult, StageStep
    from diffuse_core.services.links import Link
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TICK_S", 0.02)


def ask(count: int = 12, model: str = "tiny", length: int = 13) -> GenerateRequest:
    return GenerateRequest(model=model, raw=words(length), max_tokens=count, ignore_eos=True)


FREE_PASSES = 5


class Gate:
    """Lets a host's executor make a few passes, then holds it until the end of the block."""

    def __init__(self, host: Host) -> None:
        self.passes = 0
        self._executor = host.executors[-1]
        self._plain = self._executor.run
        self._open = threading.Event()

    def __enter__(self) -> Gate:
        self._executor.run = self._run
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()

    def _run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        self.passes += 1
        if self.passes > FREE_PASSES:
            self._open.wait(10)
        return self._plain(steps)


def busy(cluster: Cluster) -> list[int]:
    return [host.service.stage.sessions for host in cluster.hosts]


async def test_the_owner_sees_the_network_and_the_machine(split: Callable) -> None:
    cluster = await split(2)
    host = cluster.hosts[0]
    attached = await cluster.attach(host)
    async with aclosing(attached.updates()) as updates:
        first = await anext(updates)
        assert first.view.me == host.id.hex()
        assert first.view.models[0].layers == LAYERS
        assert first.telemetry.slice == host.service.slice
        assert first.telemetry.stage == "ready"
        assert first.telemetry.weight_bytes == host.executors[0].weight_bytes
        assert first.telemetry.tasks > 1
        assert first.telemetry.open_files > 0
        host.node.note("info", "something happened")
        async with asyncio.timeout(10):
            async for update in updates:
                if any(event.text == "something happened" for event in update.events):
                    break
        # Each event is told once.
        assert not any(e.text == "something happened" for e in (await anext(updates)).events)


async def test_the_owner_sees_a_loop_that_was_held_up(split: Callable) -> None:
    cluster = await split(1)
    attached = await cluster.attach(cluster.hosts[0])
    async with asyncio.timeout(5), aclosing(attached.updates()) as updates:
        await anext(updates)
        time.sleep(0.5)  # noqa: ASYNC251  (what is to be noticed)
        async for update in updates:
            telemetry = update.telemetry
            if telemetry.loop_lag_max_s >= 0.1:
                break
        assert telemetry.loop_lag_p50_s <= telemetry.loop_lag_p99_s <= telemetry.loop_lag_max_s
        assert telemetry.loop_lag_ever_max_s >= telemetry.loop_lag_max_s
        assert telemetry.bytes_in > 0
        assert telemetry.bytes_out > 0


async def test_the_owner_generates_through_the_node(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(3)
    attached = await cluster.attach(cluster.hosts[1])
    async with aclosing(attached.generate(ask(20))) as stream:
        events = [event async for event in stream]
    assert isinstance(events[0], RouteChosen)
    assert isinstance(events[-1], Finished)
    tokens = [t for event in events if isinstance(event, TextDelta) for t in event.token_ids]
    assert tuple(tokens) == tiny.says(ids(13), 20, ignore_eos=True)
    assert [step.via for step in events[0].route].count("local") == 1


async def test_generations_of_one_owner_do_not_mix(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    one, other = await cluster.attach(cluster.hosts[0]), await cluster.attach(cluster.hosts[0])

    async def tokens(attached: attachment.NodeAttachment, length: int) -> tuple[int, ...]:
        found: list[int] = []
        async with aclosing(attached.generate(ask(15, length=length))) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    found.extend(event.token_ids)
        return tuple(found)

    lengths = (2, 5, 13, 21)
    answers = await asyncio.gather(
        *(tokens(one if n % 2 else other, n) for n in lengths),
    )
    assert answers == [tiny.says(ids(n), 15, ignore_eos=True) for n in lengths]


async def test_closing_a_generation_cancels_it_on_the_stages(split: Callable) -> None:
    cluster = await split(2)
    attached = await cluster.attach(cluster.hosts[0])
    with Gate(cluster.hosts[1]) as gate:
        async with aclosing(attached.generate(ask(100))) as stream:
            while not isinstance(await anext(stream), TextDelta):
                pass
            assert busy(cluster) == [1, 1]
        await until(lambda: busy(cluster) == [0, 0])
        assert gate.passes < 100
    for host in cluster.hosts:
        await host.idle()
    # The attachment can be used on.
    async with aclosing(attached.generate(ask(3))) as stream:
        assert isinstance([event async for event in stream][-1], Finished)


async def test_detaching_cancels_what_still_runs(split: Callable) -> None:
    cluster = await split(2)
    attached = await cluster.attach(cluster.hosts[0])
    with Gate(cluster.hosts[1]):
        async with aclosing(attached.generate(ask(100))) as stream:
            # All that the gate lets through: the node has nothing to send when the link ends.
            heard = 0
            while heard < FREE_PASSES:
                heard += isinstance(await anext(stream), TextDelta)
            await attached.close()
            await until(lambda: busy(cluster) == [0, 0])
            events = [event async for event in stream]
    assert isinstance(events[-1], Failed)
    for host in cluster.hosts:
        await host.idle()


async def test_failures_reach_the_owner_in_words(split: Callable) -> None:
    cluster = await split(1)
    attached = await cluster.attach(cluster.hosts[0])
    async with aclosing(attached.generate(ask(model="gpt-9"))) as stream:
        (event,) = [event async for event in stream]
    assert isinstance(event, Failed)
    assert event.exit_code == 3
    assert "gpt-9" in event.message


async def test_a_lost_stage_reaches_the_owner(split: Callable) -> None:
    cluster = await split(2)
    attached = await cluster.attach(cluster.hosts[0])
    with Gate(cluster.hosts[1]):
        async with asyncio.timeout(10), aclosing(attached.generate(ask(100))) as stream:
            while not isinstance(await anext(stream), TextDelta):
                pass
            cluster.crash(cluster.hosts[1])
            events = [event async for event in stream]
    assert isinstance(events[-1], Failed)
    assert events[-1].exit_code == 7


async def test_too_many_generations_are_refused(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_GENERATIONS", 0)
    cluster = await split(1)
    attached = await cluster.attach(cluster.hosts[0])
    async with aclosing(attached.generate(ask())) as stream:
        (event,) = [event async for event in stream]
    assert isinstance(event, Failed)
    assert event.exit_code == 6


async def test_a_stranger_gets_nothing(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    curious = await cluster.attach(host, cluster.identity())
    async with aclosing(curious.updates()) as updates:
        with pytest.raises(Refused, match="owner") as got:
            await anext(updates)
    assert got.value.reason == "owner"
    greedy = await cluster.attach(host, cluster.identity())
    async with aclosing(greedy.generate(ask())) as stream:
        (event,) = [event async for event in stream]
    assert isinstance(event, Failed)
    assert event.exit_code == 6
    assert event.message.startswith("only this node's owner may ask that")
    hostile = await cluster.attach(host, cluster.identity())
    await hostile.stop_node()
    await until(lambda: hostile._refusal is not None)
    assert not host.ending.asked.is_set()
    await host.idle()


async def test_a_stranger_cannot_cancel(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    attached = await cluster.attach(host)
    link = await Intruder(cluster).to(host)
    tokens: list[int] = []
    async with aclosing(attached.generate(ask(100))) as stream:
        async for event in stream:
            if isinstance(event, RouteChosen):
                for number in range(4):
                    await link.send(CancelGenerate(number))
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
    assert tuple(tokens) == tiny.says(ids(13), 100, ignore_eos=True)


async def test_who_is_refused_learns_that_the_key_is_another(split: Callable) -> None:
    cluster = await split(1)
    curious = await cluster.attach(cluster.hosts[0], cluster.identity())
    await curious.stop_node()
    await until(lambda: curious._link.closed)
    for use in (curious.stop_node(), anext(curious.updates()), anext(curious.generate(ask()))):
        with pytest.raises(Refused, match=r"only this node's owner .* another owner\.key") as got:
            await use
        assert got.value.reason == "owner"


async def test_the_owner_stops_the_node(split: Callable) -> None:
    cluster = await split(1)
    attached = await cluster.attach(cluster.hosts[0])
    await attached.stop_node()
    await asyncio.wait_for(cluster.hosts[0].ending.asked.wait(), 2)


@pytest.mark.parametrize("orderly", [True, False])
async def test_an_attachment_ends_when_the_node_goes(split: Callable, *, orderly: bool) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    attached = await cluster.attach(host)
    async with aclosing(attached.updates()) as updates:
        await anext(updates)
        if orderly:
            await cluster.leave(host)
        else:
            cluster.memory.kill(host.address)
        await until(lambda: attached._link.closed)
        while attached._updates.qsize() > 1:
            await anext(updates)
        with pytest.raises(ChannelClosed, match="gone"):
            await anext(updates)
    with pytest.raises(ChannelClosed):
        await anext(attached.generate(ask()))
    with pytest.raises(ChannelClosed):
        await attached.stop_node()


async def test_a_generation_ends_when_the_node_goes(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    attached = await cluster.attach(host)
    async with asyncio.timeout(10), aclosing(attached.generate(ask(100))) as stream:
        assert isinstance(await anext(stream), RouteChosen)
        cluster.memory.kill(host.address)
        rest = [event async for event in stream]
    assert isinstance(rest[-1], Failed)
    assert rest[-1].exit_code == 5


async def test_a_reader_far_behind_gets_an_end(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "QUEUE_EVENTS", 4)
    cluster = await split(1)
    attached = await cluster.attach(cluster.hosts[0])
    async with asyncio.timeout(5), aclosing(attached.generate(ask(100))) as stream:
        events = [await anext(stream)]
        await until(lambda: not attached._answers)
        events += [event async for event in stream]
    assert isinstance(events[-1], Failed)
    assert len(events) < 10
    await cluster.hosts[0].idle()


async def test_a_slow_screen_gets_the_newest_picture_and_every_event(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    attached = await cluster.attach(host)
    came: list[Update] = []
    inner = attached._links._handlers[Update]

    async def hear(link: Link, message: Update, body: memoryview) -> None:
        came.append(message)
        await inner(link, message, body)

    attached._links.handle(Update, hear)
    async with aclosing(attached.updates()) as updates:
        await anext(updates)
        for number in range(12):
            host.node.note("info", f"marker {number}")
            seen = len(came)
            await until(lambda seen=seen: len(came) > seen + 1)
        newest = came[-1].feed.view.taken_at
        assert attached._updates.qsize() <= attachment.QUEUE_UPDATES
        told: list[str] = []
        taken = 0.0
        while taken < newest:
            update = await anext(updates)
            taken = update.view.taken_at
            told += [event.text for event in update.events if "marker" in event.text]
    assert told == [f"marker {number}" for number in range(12)]
