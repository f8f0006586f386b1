"""A generation that loses a Stage goes on, and says what it would have said undisturbed."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.services import run, stage_run
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

COUNT = 60
PROMPT = 21


@pytest.fixture(autouse=True)
def _fine_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several pieces and messages, and a ring that soon waits for the client."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 8)
    monkeypatch.setattr(run, "MAX_ROWS", 16)
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


async def on_route(listener: Listener, hosts: dict[str, Host], index: int) -> Host:
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
        lost = await on_route(listener, hosts, victim)
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
