"""Stages that fall silent in the middle: found out by being asked, and named."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import ForwardHidden, OpenSession, WatchSession
from diffuse_core.domain.view import GenerateRequest, TextDelta
from diffuse_core.errors import StagesLost
from diffuse_core.services import roll_call
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

REQUEST = GenerateRequest(model="tiny", raw=words(9), max_tokens=60, ignore_eos=True)


@pytest.fixture(autouse=True)
def _watch_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll_call, "WATCH_S", 0.05)
    monkeypatch.setattr(roll_call, "SILENT_S", 0.1)


def silence(host: Host) -> None:
    """What a paused process looks like from outside: its links stand, nothing comes back."""
    host.node.links.unhandle(ForwardHidden, WatchSession)


async def exhaust(stream: AsyncGenerator) -> None:
    async for _ in stream:
        pass


@pytest.mark.slow
async def test_a_stage_that_falls_silent_is_named(split: Callable) -> None:
    cluster: Cluster = await split(3)
    client = await cluster.client()
    quiet = cluster.hosts[1]
    async with asyncio.timeout(10), aclosing(client.generate(REQUEST)) as stream:
        while not isinstance(await anext(stream), TextDelta):
            pass
        silence(quiet)
        with pytest.raises(StagesLost, match=f"stage {quiet.id.hex()[:8]}.*stopped answering"):
            await exhaust(stream)
    for host in cluster.hosts:
        await host.idle()


async def test_a_stage_that_does_not_open_is_replaced_when_it_is_found_silent(
    cluster: Cluster, tiny: TinyModel
) -> None:
    quiet, other = await cluster.host(), await cluster.host()
    client = await cluster.client()
    quiet.node.links.unhandle(OpenSession, WatchSession)
    async with asyncio.timeout(5):
        # The route takes either of them.
        while not (finished := (await client.whole(REQUEST))[2]).events:
            pass
    assert f"stage {quiet.id.hex()[:8]}" in finished.events[0]
    assert "stopped answering" in finished.events[0]
    assert [step.node for step in finished.route] == [other.id.hex()]
    await other.idle()


async def test_a_slow_stage_that_answers_is_waited_for(split: Callable, tiny: TinyModel) -> None:
    cluster: Cluster = await split(3)
    client = await cluster.client()
    slow = cluster.hosts[1]
    pass_on = slow.node.links._handlers[ForwardHidden]

    async def later(*rows: object) -> None:
        await asyncio.sleep(0.3)  # Longer than it takes to be asked twice.
        await pass_on(*rows)

    slow.node.links.handle(ForwardHidden, later)
    request = GenerateRequest(model="tiny", raw=words(9), max_tokens=2, ignore_eos=True)
    async with asyncio.timeout(10):
        _, tokens, _ = await client.whole(request)
    assert tokens == tiny.says(ids(9), 2, ignore_eos=True)
