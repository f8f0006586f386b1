"""A generation that loses a Stage goes on, and says what it would have said undisturbed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import OpenSession
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import StagesLost
from diffuse_core.services import generation, run, session_terms, stage_run
from diffuse_core.services.route_choice import RouteChoice
from tests.services.tiny_model import BEGIN, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

COUNT = 60
PROMPT = 21


@pytest.fixture(autouse=True)
def _fine_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several pieces and messages, and a ring that soon waits for the client."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 16)
    monkeypatch.setattr(session_terms, "MAX_ROWS", 16)
    monkeypatch.setattr(run, "CREDITS", 8)


def ask(count: int = COUNT, **options: object) -> GenerateRequest:
    return GenerateRequest(
        model="tiny", raw=words(PROMPT), max_tokens=count, ignore_eos=True, **options
    )


class Listener:
    """Reads a generation, as far as it is told to."""

    def __init__(self, stream: AsyncGenerator) -> None:
        self.stream = stream
        self.tokens: list[int] = []
        self.text = ""
        self.finished: Finished | None = None

    async def hear(self, count: int = 10_000) -> None:
        until_ = len(self.tokens) + count
        while len(self.tokens) < until_:
            event = await anext(self.stream, None)
            if event is None:
                return
            if isinstance(event, TextDelta):
                self.tokens.extend(event.token_ids)
                self.text += event.text
            elif isinstance(event, Finished):
                self.finished = event

    def says(self, tiny: TinyModel, count: int = COUNT) -> None:
        """Assert that it heard all, and what would have come undisturbed."""
        assert tuple(self.tokens) == tiny.says(ids(PROMPT), count, ignore_eos=True)
        assert self.finished is not None
        assert self.finished.finish_reason == "length"
        assert self.finished.usage.completion_tokens == count
        assert self.finished.usage.prompt_tokens == PROMPT


async def twice(cluster: Cluster) -> dict[str, Host]:
    """Two hosts for each half; by node id."""
    for cap in (5, 5):
        await cluster.host(cap)
    late = [await cluster.host(5, wait=False), await cluster.host(5, wait=False)]
    await cluster.settled(*late)
    halves = [host.service.slice for host in cluster.hosts]
    assert all(halves.count(part) == 2 for part in halves)
    return {host.id.hex(): host for host in cluster.hosts}


def on_route(hosts: dict[str, Host], index: int) -> Host:
    """The host that runs the Stage of this index now."""
    busy = [host for host in hosts.values() if host.service.stage.sessions]
    return sorted(busy, key=lambda host: host.service.slice)[index]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("orderly", [True, False])
async def test_a_replica_takes_the_place_of_a_stage_that_goes(
    cluster: Cluster, tiny: TinyModel, victim: int, *, orderly: bool
) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        lost = on_route(hosts, victim)
        if orderly:
            await cluster.leave(lost)
        else:
            cluster.crash(lost)
        await listener.hear()
    listener.says(tiny)
    (told,) = listener.finished.events
    part = listener.finished.route[victim].slice
    assert f"stage {lost.id.hex()[:8]} (layers {part}) was lost (" in told
    assert f"went on with {listener.finished.route[victim].node[:8]} after " in told
    assert lost.id.hex() not in {step.node for step in listener.finished.route}
    for host in hosts.values():
        if host is not lost:
            await host.idle()


async def test_a_client_that_is_a_host_goes_on(cluster: Cluster, tiny: TinyModel) -> None:
    hosts = await twice(cluster)
    client = cluster.hosts[0].client
    own = cluster.hosts[0].service.slice
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(5)
        lost = on_route(hosts, 0 if own.start else 1)
        assert lost is not cluster.hosts[0]
        cluster.crash(lost)
        await listener.hear()
    listener.says(tiny)
    assert len(listener.finished.events) == 1


async def test_one_loss_after_another(cluster: Cluster, tiny: TinyModel) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        for count, index in ((3, 0), (20, 1)):
            await listener.hear(count)
            lost = on_route(hosts, index)
            cluster.crash(lost)
            # It does not know, and holds what it had for a while.
            del hosts[lost.id.hex()]
        await listener.hear()
    listener.says(tiny)
    assert len(listener.finished.events) == 2


async def test_only_the_way_was_lost(split: Callable, tiny: TinyModel) -> None:
    """The client reaches the host again: no other is needed."""
    cluster: Cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        await observer.links.find(cluster.hosts[1].id).close()
        await listener.hear()
    listener.says(tiny)
    name = cluster.hosts[1].id.hex()[:8]
    (told,) = listener.finished.events
    assert told.startswith(f"stage {name} (layers 5:10) was lost (the link to it ended); went on")
    for host in cluster.hosts:
        await host.idle()


async def test_a_lost_link_between_stages(split: Callable, tiny: TinyModel) -> None:
    """Both live and can be reached; and soon they reach each other again."""
    cluster: Cluster = await split(3)
    first, second, _ = sorted(cluster.hosts, key=lambda host: host.service.slice)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        cluster.memory.cut(first.id, second.id)
        cluster.memory.heal(first.id, second.id)
        await listener.hear()
    listener.says(tiny)
    assert len(listener.finished.events) == 1


async def test_stages_that_cannot_reach_each_other_are_gone_around(
    cluster: Cluster, tiny: TinyModel
) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        cluster.memory.cut(on_route(hosts, 0).id, on_route(hosts, 1).id)
        await listener.hear()
    listener.says(tiny)


async def test_who_has_been_lost_twice_is_asked_again_where_there_is_nobody_else(
    split: Callable, tiny: TinyModel
) -> None:
    cluster: Cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        for count in (5, 5):
            await listener.hear(count)
            await observer.links.find(cluster.hosts[1].id).close()
        await listener.hear()
    listener.says(tiny)
    assert len(listener.finished.events) == 2
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.usefixtures("_long_grace")
async def test_a_host_that_comes_in_time_takes_the_place(split: Callable, tiny: TinyModel) -> None:
    """The client holds a picture of before; it looks again."""
    cluster: Cluster = await split(2)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        await cluster.leave(cluster.hosts[1])
        waiting = asyncio.create_task(listener.hear())
        late = await cluster.host(5)
        await waiting
    listener.says(tiny)
    assert late.id.hex() in {step.node for step in listener.finished.route}
    assert f"went on with {late.id.hex()[:8]}" in listener.finished.events[0]


@pytest.mark.usefixtures("_long_grace")
@pytest.mark.slow
async def test_a_host_that_has_no_room_at_once_is_asked_again(
    split: Callable, tiny: TinyModel
) -> None:
    cluster: Cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    stage = cluster.hosts[1].service.stage
    room = stage.kv_budget
    forgotten = "this host does not hold the session"
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        stage.kv_budget = 0
        asked = 0
        answer = cluster.hosts[1].node.links._handlers[OpenSession]

        async def counted(*given: object) -> None:
            nonlocal asked
            asked += 1
            if asked == 3:
                stage.kv_budget = room
            await answer(*given)

        cluster.hosts[1].node.links.handle(OpenSession, counted)
        stage._forget(next(iter(stage._runs.values())))
        await listener.hear()
    listener.says(tiny)
    # That it declined at first is no loss of its own.
    (told,) = listener.finished.events
    assert f"was lost ({forgotten}); went on with {cluster.hosts[1].id.hex()[:8]}" in told


@pytest.fixture
def _long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MOST_GRACE_S", 60.0)


@pytest.mark.usefixtures("_long_grace")
async def test_cancelling_while_a_replica_is_looked_for(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Cluster = await split(2)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        looked = asyncio.Event()
        choose = RouteChoice.choose

        def look(*given: object, **more: object) -> object:
            looked.set()
            return choose(*given, **more)

        monkeypatch.setattr(RouteChoice, "choose", look)
        cluster.crash(cluster.hosts[1])
        waiting = asyncio.create_task(listener.hear())
        await looked.wait()
        assert cluster.hosts[0].service.stage.sessions == 1
        async with asyncio.timeout(10):
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    assert not client._desk._runs
    await cluster.hosts[0].idle()


async def test_cancelling_while_rows_are_run_again(cluster: Cluster) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(30)
        lost = hosts.pop(on_route(hosts, 1).id.hex())
        other = next(h for h in hosts.values() if h.service.slice == lost.service.slice)
        cluster.crash(lost)
        waiting = asyncio.create_task(listener.hear(1))
        await until(lambda: other.service.stage.sessions)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    for host in hosts.values():
        await host.idle()


async def test_the_books_are_those_of_the_lost_stage(cluster: Cluster, tiny: TinyModel) -> None:
    """Budget, prompt and limit of the one that takes its place are the same."""
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(COUNT - 15)
        lost = hosts.pop(on_route(hosts, 1).id.hex())
        cluster.crash(lost)
        await listener.hear(1 + 8)
        for index in (0, 1):
            stage = on_route(hosts, index).service.stage
            (state,) = (one.state for one in stage._runs.values())
            assert (state.budget, state.prompt) == (PROMPT + COUNT, PROMPT)
            assert state.epoch == 1
        await listener.hear()
    listener.says(tiny)


async def test_a_stop_string_may_lie_across_the_loss(split: Callable, tiny: TinyModel) -> None:
    cluster: Cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    said = tiny.says(ids(PROMPT), COUNT, ignore_eos=True)
    assert max(said[19:21]) < BEGIN
    stop = f"w{said[19]} w{said[20]}"
    async with aclosing(client.generate(ask(stop=(stop,)))) as stream:
        listener = Listener(stream)
        await listener.hear(20)
        await observer.links.find(cluster.hosts[0].id).close()
        # Some tokens were on their way already.
        await listener.hear()
    assert listener.finished.finish_reason == "stop"
    assert listener.text.split() == [f"w{token}" for token in said[:19] if token < BEGIN]


async def test_a_generation_survives_so_many_losses(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "MAX_LOSSES", 1)
    cluster: Cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(5)
        await observer.links.find(cluster.hosts[0].id).close()
        await listener.hear(20)
        await observer.links.find(cluster.hosts[1].id).close()
        with pytest.raises(StagesLost, match="loss 2 in one generation"):
            await listener.hear()
