"""An answer that waits for lost layers does not keep back the Host that is to take them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import liveness
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.services import generation, placement, run, stage_run
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

COUNT = 40


async def hear(stream: AsyncGenerator, count: int) -> list[int]:
    """Token ids of an answer, as far as so many or its end."""
    tokens: list[int] = []
    while len(tokens) < count:
        event = await anext(stream)
        if isinstance(event, TextDelta):
            tokens.extend(event.token_ids)
        elif isinstance(event, Finished):
            break
    return tokens


@pytest.mark.slow
async def test_the_host_that_moves_does_not_wait_for_who_waits_for_it(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All holders of one half die; each holder of the other is in the middle of an answer."""
    monkeypatch.setattr(liveness, "PROBE_INTERVAL_S", 0.1)
    monkeypatch.setattr(liveness, "PROBE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(run, "CREDITS", 8)
    monkeypatch.setattr(generation, "MOST_GRACE_S", 60.0)
    monkeypatch.setattr(stage_run, "STUCK_S", 1.0)
    hosts = [await cluster.host(5) for _ in range(4)]
    doomed = [host for host in hosts if host.service.slice == Slice(5, 10)]
    left = [host for host in hosts if host not in doomed]
    assert len(doomed) == len(left) == 2
    request = GenerateRequest(
        model="tiny", raw=words(13), max_tokens=COUNT, ignore_eos=True, grace_s=60.0
    )
    async with AsyncExitStack() as streams:
        open_: list[tuple[AsyncGenerator, list[int]]] = []
        room = left[0].service.stage.kv_budget
        for _ in left:
            client = await cluster.client()
            stream = await streams.enter_async_context(aclosing(client.generate(request)))
            open_.append((stream, await hear(stream, 5)))
            for host in left:
                # One that has a session takes no other.
                host.service.stage.kv_budget = 0 if host.service.stage.sessions else room
        assert [host.service.stage.sessions for host in left] == [1, 1]
        for host in left:
            host.service.stage.kv_budget = room
        for host in doomed:
            cluster.crash(host)
        async with asyncio.timeout(placement.DRAIN_S - 5.0):
            rest = await asyncio.gather(*(hear(stream, COUNT) for stream, _ in open_))
    for (_, first), more in zip(open_, rest, strict=True):
        assert tuple(first + more) == tiny.says(ids(13), COUNT, ignore_eos=True)
