"""An answer that was begun is not cut short because whoever takes it up has little room."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.session_memory import session_bytes
from diffuse_core.errors import StagesLost
from diffuse_core.services import generation, run
from tests.services.test_blame import tells
from tests.services.test_going_on import COUNT, PROMPT, Listener, ask, on_route, twice

if TYPE_CHECKING:
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

ROWS = 45


@pytest.fixture(autouse=True)
def _short_run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of the answer is there before what a test does to it."""
    monkeypatch.setattr(run, "CREDITS", 8)


async def told(cluster: Cluster, host: Host, rows: int) -> None:
    """Let a host say that it has room for so many rows; return when all know."""
    budget = session_bytes(host.service.model.shape, "fp32", host.service.slice, rows)
    await tells(cluster, host, kv_budget=budget)


def twin(hosts: dict[str, Host], host: Host) -> Host:
    same = (one for one in hosts.values() if one.service.slice == host.service.slice)
    return next(one for one in same if one is not host)


@pytest.mark.slow
async def test_no_replica_with_room_is_said(cluster: Cluster) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        lost = on_route(hosts, 1)
        await told(cluster, twin(hosts, lost), ROWS)
        cluster.crash(lost)
        with pytest.raises(StagesLost, match=f"room for all {PROMPT + COUNT} tokens.*ask again"):
            await listener.hear()
    assert len(listener.tokens) < COUNT


@pytest.mark.slow
async def test_a_replica_that_gets_room_in_time_goes_on(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "MOST_GRACE_S", 10.0)
    hosts = await twice(cluster)
    client = await cluster.client()
    looked = []

    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear(10)
        lost = on_route(hosts, 1)
        other = twin(hosts, lost)
        await told(cluster, other, ROWS)
        pause = generation.asyncio.sleep

        async def look(seconds: float) -> None:
            if seconds == generation.LOOK_S and not looked:
                looked.append(seconds)
                await told(cluster, other, PROMPT + COUNT)
            await pause(seconds)

        monkeypatch.setattr(generation.asyncio, "sleep", look)
        cluster.crash(lost)
        await listener.hear()
    assert looked
    listener.says(tiny)


@pytest.mark.slow
async def test_a_new_answer_goes_where_there_is_room(cluster: Cluster, tiny: TinyModel) -> None:
    """The one with little says that it is fast, and its twin seems slow."""
    hosts = await twice(cluster)
    small, roomy = (host for host in hosts.values() if host.service.slice.start == 0)
    await tells(cluster, roomy, step_ms=400.0)
    await told(cluster, small, ROWS)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear()
    listener.says(tiny)
    assert listener.finished.route[0].node == roomy.id.hex()
