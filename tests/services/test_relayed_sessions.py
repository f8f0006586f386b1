"""Hosts that nobody can dial serve as others do, and their Sessions end as everywhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import StagesLost
from diffuse_core.services import (
    generation,
    placement,
    reachability,
    reservations,
    roll_call,
    run,
)
from tests.services.hearing import heard
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from diffuse_core.services.links import Links
    from diffuse_core.services.node import Node
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

COUNT = 100
SOCKETS = pytest.mark.parametrize("sockets", [False, True], ids=["memory", "sockets"])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "LOOK_S", 0.05)
    monkeypatch.setattr(reservations, "LOOK_S", 0.05)
    monkeypatch.setattr(run, "CREDITS", 8)


def ask(count: int = COUNT) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(13), max_tokens=count, ignore_eos=True)


async def rest(stream: AsyncGenerator) -> tuple[list[int], Finished]:
    tokens: list[int] = []
    async for event in stream:
        if isinstance(event, TextDelta):
            tokens.extend(event.token_ids)
        elif isinstance(event, Finished):
            return tokens, event
    raise AssertionError("it ended without a word")


async def nothing_left(cluster: Cluster) -> None:
    """Wait until no host holds anything of a Session."""
    for host in cluster.hosts:
        await host.idle()


def busy(cluster: Cluster) -> list[int]:
    return [host.service.stage.sessions for host in cluster.hosts]


def carriers(cluster: Cluster, links: Links) -> set[bytes]:
    """The sentinels through which these links to hosts go."""
    found = {links.find(host.id).relayed_through for host in cluster.hosts}
    assert None not in found
    return found


def sentinel_of(cluster: Cluster, links: Links) -> Node:
    """A sentinel that carries some of these links."""
    through = min(carriers(cluster, links))
    return next(node for node in cluster.nodes if node.id == through)


@SOCKETS
async def test_hosts_behind_one_sentinel_say_what_the_whole_model_says(
    split: Callable, tiny: TinyModel, *, sockets: bool
) -> None:
    cluster = await split(2, sockets=sockets, relayed=True)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    _, tokens, finished = await client.whole(ask(40))
    assert tokens == tiny.says(ids(13), 40, ignore_eos=True)
    assert [step.via for step in finished.route] == ["relay", "relay"]
    assert not finished.events
    await nothing_left(cluster)
    first, second = cluster.hosts
    between = first.node.links.linked()[second.id]
    assert all(link.relayed_through is not None for link in between)
    # Circuits are given back at once when an end closes them.
    await until(lambda: cluster.carried() == 2 + len(between))
    await observer.close()
    await until(lambda: cluster.carried() == len(between))
    await cluster.leave(first)
    await until(lambda: cluster.carried() == 0)


async def test_a_relayed_host_asks_others_and_itself(cluster: Cluster, tiny: TinyModel) -> None:
    await cluster.host(4)
    await cluster.host(4, relayed=True)
    asking = await cluster.host(2, relayed=True)
    _, tokens, finished = await asking.client.whole(ask(20))
    assert tokens == tiny.says(ids(13), 20, ignore_eos=True)
    assert sorted(step.via for step in finished.route) == ["direct", "local", "relay"]


@SOCKETS
async def test_cancelling_and_closing_free_relayed_hosts(
    split: Callable, *, sockets: bool
) -> None:
    cluster = await split(2, sockets=sockets, relayed=True)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        await heard(stream, 5)
        assert busy(cluster) == [1, 1]
    await nothing_left(cluster)
    task = asyncio.create_task(client.whole(ask()))
    await until(lambda: busy(cluster) == [1, 1])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await nothing_left(cluster)
    await client.whole(ask(5))
    await nothing_left(cluster)


@pytest.mark.slow
async def test_a_client_that_vanishes_frees_relayed_hosts(split: Callable) -> None:
    cluster = await split(2, relayed=True)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    async with aclosing(client.generate(ask())) as stream:
        await heard(stream, 5)
        held = cluster.carried()
        cluster.vanish(observer.id)
        await nothing_left(cluster)
        await until(lambda: cluster.carried() == held - 2)
        with pytest.raises(StagesLost, match="ask again"):
            await heard(stream, COUNT)


@pytest.mark.slow
@SOCKETS
async def test_a_sentinel_that_vanishes_frees_the_hosts_behind_it(
    split: Callable, *, sockets: bool
) -> None:
    cluster = await split(2, sockets=sockets, relayed=True)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        await heard(stream, 5)
        await cluster.lose_sentinel(cluster.nodes[0])
        await nothing_left(cluster)
        with pytest.raises(StagesLost, match="no host that answers holds layers"):
            await heard(stream, COUNT)
    await nothing_left(cluster)


async def test_a_relayed_host_that_leaves_frees_its_neighbour(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STOP_S", 0.05)
    cluster = await split(2, relayed=True)
    client = await cluster.client()
    first, second = cluster.hosts
    async with aclosing(client.generate(ask())) as stream:
        await heard(stream, 5)
        await first.service.leave()
        with pytest.raises(StagesLost, match="the host is leaving"):
            await heard(stream, COUNT)
    await second.idle()


@SOCKETS
async def test_a_generation_outlives_its_sentinel(
    split: Callable, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, *, sockets: bool
) -> None:
    """The same hosts go on through the other sentinel."""
    monkeypatch.setattr(generation, "MOST_GRACE_S", 10.0)
    cluster = await split(2, sockets=sockets, relayed=True, relays=2)
    for host in cluster.hosts:
        await until(lambda host=host: len(host.node.addresses(host.id)) == 2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    async with aclosing(client.generate(ask())) as stream:
        said = await heard(stream, 10)
        lost = sentinel_of(cluster, observer.links)
        await cluster.lose_sentinel(lost)
        more, finished = await rest(stream)
    assert tuple(said + more) == tiny.says(ids(13), COUNT, ignore_eos=True)
    assert [step.via for step in finished.route] == ["relay", "relay"]
    assert {step.node for step in finished.route} == {host.id.hex() for host in cluster.hosts}
    assert lost.id not in carriers(cluster, observer.links)
    assert any("was lost (" in event and "went on with" in event for event in finished.events)
    await nothing_left(cluster)
    # New ones begin at once, and without trouble.
    assert not (await client.whole(ask(5)))[2].events


async def test_a_circuit_that_falls_silent_is_replaced(
    split: Callable, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the sentinel freezes: nothing ends, nothing comes; the host may be well."""
    monkeypatch.setattr(roll_call, "WATCH_S", 0.05)
    monkeypatch.setattr(roll_call, "SILENT_S", 0.1)
    cluster = await split(2, relayed=True)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    last = max(cluster.hosts, key=lambda host: host.service.slice)
    deliver = run.ClientRun.deliver
    async with aclosing(client.generate(ask(40))) as stream:
        said = await heard(stream, 5)
        frozen = observer.links.find(last.id)

        def swallow(self: run.ClientRun, link: object, answer: object) -> None:
            if link is not frozen:
                deliver(self, link, answer)

        monkeypatch.setattr(run.ClientRun, "deliver", swallow)
        more, finished = await rest(stream)
    assert tuple(said + more) == tiny.says(ids(13), 40, ignore_eos=True)
    (told,) = finished.events
    assert f"stage {last.id.hex()[:8]} (layers 5:10) was lost (it stopped answering" in told
    assert frozen.closed
    await nothing_left(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["first", "last"])
async def test_a_stage_behind_a_sentinel_is_replaced(
    cluster: Cluster, tiny: TinyModel, victim: int
) -> None:
    """All go through relays: the one that is lost, its neighbour, and who takes its place."""
    for _ in range(2):
        for cap in (5, 5):
            await cluster.host(cap, relayed=True)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        said = await heard(stream, 10)
        on_route = [host for host in cluster.hosts if host.service.stage.sessions]
        lost = sorted(on_route, key=lambda host: host.service.slice)[victim]
        cluster.crash(lost)
        more, finished = await rest(stream)
    assert tuple(said + more) == tiny.says(ids(13), COUNT, ignore_eos=True)
    assert f"stage {lost.id.hex()[:8]}" in finished.events[0]
    assert lost.id.hex() not in {step.node for step in finished.route}
    assert {step.via for step in finished.route} == {"relay"}
    for host in cluster.hosts:
        if host is not lost:
            await host.idle()
