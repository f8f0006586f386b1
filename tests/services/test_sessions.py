"""Sessions end on every stage, however they end; a client that does not read stops the ring."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import CloseSession, SessionOpened, TokensDrawn
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import StagesLost
from diffuse_core.services import run, stage_run
from tests.services.hand_client import SESSION, HandClient
from tests.services.hearing import heard
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

CREDITS = 8


@pytest.fixture(autouse=True)
def few_credits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CREDITS", CREDITS)


def ask(count: int = 100, **more: object) -> GenerateRequest:
    return GenerateRequest(
        model="tiny", raw=words(13), max_tokens=count, ignore_eos=True, speculate=False, **more
    )


def busy(cluster: Cluster) -> list[int]:
    return [host.service.stage.sessions for host in cluster.hosts]


async def quiet(cluster: Cluster) -> None:
    """Wait until no executor has computed anything for many turns of the loop."""
    before, still = [-1], 0
    while still < 10:
        for host in cluster.hosts:
            await host.compute.run(lambda: None)
        rows = [host.rows() for host in cluster.hosts]
        still = still + 1 if rows == before else 0
        before = rows


@pytest.mark.parametrize("stages", [1, 3])
async def test_a_client_that_does_not_read_stops_the_ring(
    split: Callable, tiny: TinyModel, stages: int
) -> None:
    cluster = await split(stages)
    client = await cluster.client()
    said = tiny.says(ids(13), 100, ignore_eos=True)
    async with aclosing(client.generate(ask())) as stream:
        tokens = await heard(stream, 3)
        await quiet(cluster)
        ahead = [host.rows() - 13 for host in cluster.hosts]
        # What was read gave no new credit yet; the last token drawn is held and not fed.
        assert ahead == [CREDITS - 1] * stages
        tokens += await heard(stream, 40)
        assert tuple(tokens) == said[:43]
        await quiet(cluster)
        assert all(43 <= host.rows() - 13 < 43 + CREDITS for host in cluster.hosts)
        tokens += await heard(stream, 57)
    assert tuple(tokens) == said
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.parametrize("sockets", [False, True])
async def test_cancelling_frees_every_stage(
    split: Callable, tiny: TinyModel, *, sockets: bool
) -> None:
    cluster = await split(3, sockets=sockets)
    for client in (await cluster.client(), cluster.hosts[1].client):
        async with aclosing(client.generate(ask())) as stream:
            await heard(stream, 5)
            assert busy(cluster) == [1, 1, 1]
            assert all(host.service.stage.kv_used > 0 for host in cluster.hosts)
        for host in cluster.hosts:
            await host.idle()
    _, tokens, _ = await client.whole(ask(9))
    assert tokens == tiny.says(ids(13), 9, ignore_eos=True)


async def test_cancelling_before_the_first_token_frees_every_stage(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 1)
    cluster = await split(2)
    client = await cluster.client()
    task = asyncio.create_task(client.whole(ask()))
    await until(lambda: cluster.hosts[0].caches() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for host in cluster.hosts:
        await host.idle()


async def test_a_client_that_vanishes_is_forgotten(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "GONE_S", 0.2)
    cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    other = await cluster.client()
    async with aclosing(client.generate(ask())) as stream, aclosing(other.generate(ask())) as rest:
        await heard(stream, 5)
        await heard(rest, 5)
        assert busy(cluster) == [2, 2]
        for node in cluster.nodes:
            cluster.memory.cut(observer.id, node.id)
        await until(lambda: busy(cluster) == [1, 1])
        with pytest.raises(StagesLost):
            await heard(stream, 20)
        await heard(rest, 20)
    for host in cluster.hosts:
        await host.idle()


async def test_links_between_stages_that_stay_lost_free_all_of_them(split: Callable) -> None:
    cluster = await split(3)
    client = await cluster.client()
    async with aclosing(client.generate(ask(grace_s=0.2))) as stream:
        await heard(stream, 3)
        await quiet(cluster)
        cluster.memory.cut(cluster.hosts[0].id, cluster.hosts[1].id)
        cluster.memory.cut(cluster.hosts[1].id, cluster.hosts[2].id)
        with pytest.raises(StagesLost):
            await heard(stream, 100)
    for host in cluster.hosts:
        await host.idle()


async def test_a_session_id_opened_again_at_once_keeps_the_books_right(
    split: Callable, tiny: TinyModel
) -> None:
    """Close and open in one breath: the end of the first must not free the second."""
    cluster = await split(1)
    (host,) = cluster.hosts
    client = HandClient(cluster, ids(13), max_tokens=9)
    await client.open([host])
    for again in (client.opening(host), client.opening(host)):
        await client.send(host, CloseSession(SESSION))
        await client.send(host, again)
        await client.answer(SessionOpened)
    used = host.service.stage.kv_used
    assert used > 0
    await client.feed(0, 13)
    await until(lambda: client.finish)
    assert (busy(cluster), host.service.stage.kv_used) == ([1], used)
    assert tuple(client.tokens) == tiny.says(ids(13), 9, ignore_eos=True)
    await client.close()
    await host.idle()


async def test_many_generations_leave_nothing(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    client = await cluster.client()
    for count in range(1, 12):
        _, tokens, _ = await client.whole(ask(count))
        assert tokens == tiny.says(ids(13), 11, ignore_eos=True)[:count]
    assert not client._desk._runs
    for host in cluster.hosts:
        await host.idle()
        # Only the sweep is left.
        assert len(host.service.stage._tasks._tasks) == 1


async def test_a_stage_cannot_make_the_client_take_tokens_out_of_order(split: Callable) -> None:
    cluster = await split(2)
    client = await cluster.client()
    last = cluster.hosts[1]
    async with aclosing(client.generate(ask())) as stream:
        await heard(stream, 2)
        serving = next(iter(last.service.stage._runs.values()))
        await serving.client.send(TokensDrawn(serving.state.id, 3, (1,)))
        with pytest.raises(StagesLost, match="position"):
            await heard(stream, 2 * CREDITS)
    for host in cluster.hosts:
        await host.idle()
