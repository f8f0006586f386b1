"""What nodes count while they work: every figure moves by what really happened, and never back."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Failed,
    Finished,
    GenerateRequest,
    RouteChosen,
    TextDelta,
    Timings,
    Usage,
)
from diffuse_core.errors import ModelUnknown, Refused
from diffuse_core.services import reservations
from diffuse_core.services.counted_answers import CountedAnswers, counted
from diffuse_core.services.tally import AnswerTally, Spread, StageTally
from diffuse_core.services.vitals import Health, Vitals
from tests.services.tiny_model import LAYERS, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from diffuse_core.domain.view import GenerateEvent
    from diffuse_core.services.vitals import HostFigures, NodeFigures
    from tests.services.cluster import Cluster, Host


def vitals_of(host: Host) -> Vitals:
    return Vitals(host.node, "1.2.3", "host", host.feed, host.service, host.compute)


def hosted(figures: NodeFigures) -> HostFigures:
    assert figures.host is not None
    return figures.host


async def test_an_answer_moves_the_counters_by_what_was_computed(split: Callable) -> None:
    cluster: Cluster = await split(2)
    first, last = cluster.hosts
    client = CountedAnswers(await cluster.client())
    ask = GenerateRequest(
        model="tiny", raw=words(13), max_tokens=9, ignore_eos=True, speculate=False
    )
    events = [event async for event in client.generate(ask)]
    await first.idle()
    await last.idle()
    prompt = events[-1].usage.prompt_tokens
    for host in (first, last):
        figures = vitals_of(host).figures()
        tally = hosted(figures).tally
        # The last token drawn is not run any more.
        assert (tally.prompt_rows, tally.decode_rows) == (prompt, 8)
        assert (tally.opened, tally.closed) == (1, 1)
        assert not tally.failed
        assert not tally.refused
        assert sum(tally.short.counts) + sum(tally.long.counts) >= 9
        assert tally.short.sum > 0
        assert sum(tally.waits.counts) >= 8
        assert figures.members == {"alive": len(cluster.nodes)}
        assert figures.models == {hosted(figures).coverage.state: 1}
        assert hosted(figures).coverage.min_replicas == 1
        assert sum(count for count, _ in figures.traffic.received.values()) > 20
        assert figures.traffic.bytes_in == sum(
            size for _, size in figures.traffic.received.values()
        )
        assert figures.traffic.bytes_out == sum(size for _, size in figures.traffic.sent.values())
    assert hosted(vitals_of(first).figures()).tally.drawn == 0
    assert hosted(vitals_of(last).figures()).tally.drawn == 9
    assert (client.tally.started, client.tally.tokens) == (1, 9)
    assert client.tally.finished == {"length": 1}
    assert sum(client.tally.first_token.counts) == 1


async def test_what_is_held_now_and_who_is_beside_is_told(pair: Cluster, running: bytes) -> None:
    first, last = pair.hosts
    assert running
    for host, other in ((first, last), (last, first)):
        await until(lambda host=host: host.service.stage.sessions == 1)
        figures = hosted(vitals_of(host).figures())
        assert (figures.sessions, figures.state) == (1, "ready")
        assert 0 < figures.kv_used <= figures.kv_budget
        assert figures.weight_bytes > 0
        assert host.service.stage.neighbours() == {other.id}
        assert set(figures.round_trips) <= {other.id.hex()[:8]}


async def test_a_refusal_is_counted_by_its_reason(split: Callable) -> None:
    cluster: Cluster = await split(1)
    host = cluster.hosts[0]
    host.service.stage.drain()
    client = CountedAnswers(await cluster.client())
    with pytest.raises(Exception, match="leaving"):
        _ = [event async for event in client.generate(GenerateRequest(model="tiny", raw="w1"))]
    assert hosted(vitals_of(host).figures()).tally.refused["leaving"] >= 1
    with pytest.raises(ModelUnknown):
        _ = [event async for event in client.generate(GenerateRequest(model="no", raw="w1"))]
    assert client.tally.failed == {6: 1, 3: 1}


async def test_the_counters_of_a_host_outlive_its_slice(split: Callable) -> None:
    cluster: Cluster = await split(1)
    host = cluster.hosts[0]
    tally = host.service.tally
    assert host.service.stage.meter.tally is tally
    assert hosted(vitals_of(host).figures()).slice == Slice(0, LAYERS)


async def test_health_tells_ready_from_alive(split: Callable) -> None:
    cluster: Cluster = await split(1)
    host = cluster.hosts[0]
    vitals = vitals_of(host)
    assert vitals.health() == Health(True, True)
    assert vitals.status().startswith("tiny, layers 0:")
    host.service.enter_draining()
    assert (vitals.health().alive, vitals.health().ready) == (True, False)
    assert "finishing its sessions" in vitals.health().reason
    assert hosted(vitals.figures()).state == "draining"
    host.compute.close()
    await until(lambda: not host.compute.alive)
    assert not vitals.health().alive
    assert "restart" in vitals.health().reason
    assert hosted(vitals.figures()).state == "failed"


async def test_a_node_whose_gossip_broke_is_not_alive(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Cluster = await split(1)
    host = cluster.hosts[0]
    vitals = vitals_of(host)

    def broken(_now: float) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(host.node._gossip, "tick", broken)
    await until(lambda: not host.node.gossips)
    assert vitals.health() == Health(False, False, "gossip has ended; restart the node")
    assert any("gossips no more" in event.text for event in host.node.events)


async def test_a_sentinel_counts_what_it_relays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LOOK_S", 0.02)
    sentinel = await cluster.start_sentinel()
    await cluster.host(relayed=True)
    relay = cluster.relays[sentinel.id]
    client = await cluster.client()
    async for _ in client.generate(GenerateRequest(model="tiny", raw="w1", max_tokens=2)):
        pass
    host = cluster.hosts[0]
    vitals = Vitals(sentinel, "1", "sentinel", host.feed, relay=relay)
    found = vitals.figures().relay
    assert found.reserved >= 1
    assert found.carried >= 1
    assert found.now.bytes_relayed > 0
    assert (vitals.health().ready, vitals.status()[:9]) == (True, "sentinel ")


def test_rows_are_of_the_prompt_up_to_its_end() -> None:
    tally = StageTally()
    tally.rows(0, 8, 10)
    tally.rows(8, 4, 10)
    tally.rows(12, 1, 10)
    assert (tally.prompt_rows, tally.decode_rows) == (10, 3)


def test_a_spread_counts_each_value_once() -> None:
    spread = Spread((1.0, 2.0))
    for value in (-1.0, 0.5, 1.0, 1.5, 2.0, 9.0):
        spread.add(value)
    assert (spread.counts, spread.sum) == ([3, 2, 1], 14.0)


def test_nothing_else_is_an_end_of_an_answer() -> None:
    tally = AnswerTally()
    tally.take(TextDelta("x"))
    tally.take(Failed("x", 7))
    assert (tally.started, tally.failed, tally.finished) == (0, {7: 1}, {})


async def answer(fails: Exception | None = None) -> AsyncGenerator[GenerateEvent, None]:
    yield RouteChosen((), 3)
    yield TextDelta("x")
    if fails is not None:
        raise fails
    yield Finished(
        finish_reason="length", usage=Usage(3, 1), timings=Timings(0.1, 1.0, 1.0), route=()
    )
    yield TextDelta("told beside")


async def heard(tally: AnswerTally, most: int, fails: Exception | None = None) -> None:
    """Listen to so many events, and then no more."""
    async with aclosing(counted(tally, answer(fails))) as events:
        async for _ in events:
            most -= 1
            if not most:
                return


async def test_every_answer_has_one_end() -> None:
    tally = AnswerTally()
    for most in (1, 3, 9):
        await heard(tally, most)
    for fails in (Refused("no", "busy"), ValueError("a defect")):
        with pytest.raises(type(fails)):
            await heard(tally, 9, fails)
    assert tally.started == 5
    assert tally.finished == {"cancelled": 1, "length": 2}
    assert tally.failed == {6: 1, 1: 1}
