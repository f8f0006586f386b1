"""A stage that is gone is replaced by the client at once, before gossip has found it dead.

In the middle of an answer, which goes on as if nothing had been, and between two answers.
"""

from __future__ import annotations

import signal
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.view import Finished, GenerateRequest, RouteChosen, TextDelta
from tests.e2e.lives import Watch
from tests.e2e.own_cache import own_cache
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOKENS = 8
MANY = 100
TRIES = 20
LIMIT_S = 2.0


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyModel:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    return make_tiny_model(tmp_path / "tiny")


def ask(count: int) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(5), max_tokens=count, ignore_eos=True)


async def start_replicas(watch: Watch) -> str:
    """A sentinel, whose address this gives, and two hosts for each half of the model."""
    sentinel = await watch.start("sentinel")
    half = ("--bootstrap", sentinel.address, "--max-layers", str(LAYERS // 2))
    for number in range(4):
        await watch.start_ready(f"host-{number}", *half)
    return sentinel.address


async def until_killed(watch: Watch, client: ClientService) -> tuple[list[int], Finished, float]:
    """A generation whose second stage is killed after some tokens; the longest wait then."""
    tokens: list[int] = []
    doomed, longest, last = "", 0.0, 0.0
    async with aclosing(client.generate(ask(MANY))) as stream:
        async for event in stream:
            if isinstance(event, RouteChosen):
                doomed = event.route[1].node
            elif isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
                longest = max(longest, time.monotonic() - last) if last else 0.0
                if len(tokens) == TOKENS:
                    name = next(life.name for life in watch.lives if life.node == doomed)
                    await watch.end(name, signal.SIGKILL)
                if len(tokens) >= TOKENS:
                    last = time.monotonic()
            elif isinstance(event, Finished):
                return tokens, event, longest
    raise AssertionError("it ended without a word")


async def test_an_answer_goes_on_and_the_next_succeeds_within_two_seconds_of_kill_9(
    tmp_path: Path, model: TinyModel
) -> None:
    async with Watch(tmp_path, model.path) as watch:
        address = await start_replicas(watch)
        async with wiring.observe((address,), watch.network) as (_, client):
            tokens, finished, longest = await until_killed(watch, client)
            assert tuple(tokens) == model.says(ids(5), MANY, ignore_eos=True)
            assert len(finished.events) == 1, finished.events
            assert "was lost (" in finished.events[0]
            assert longest < LIMIT_S
            print(f"went on after {longest:.2f} s: {finished.events[0]}")  # noqa: T201
        async with wiring.observe((address,), watch.network) as (observer, client):
            await next_one_succeeds(watch, observer, client, model)


async def next_one_succeeds(
    watch: Watch, observer: Observer, client: ClientService, model: TinyModel
) -> None:
    """After a host of the half that still has two is killed between two answers."""
    right = model.says(ids(5), TOKENS, ignore_eos=True)
    _, tokens, before = await client.whole(ask(TOKENS))
    assert tokens == right
    killed = NodeId(bytes.fromhex(before.route[0].node))
    doomed = next(life.name for life in watch.lives if life.node == killed.hex())
    await watch.end(doomed, signal.SIGKILL)
    # Of two replicas a route takes either; this goes on until the dead one was tried.
    for _ in range(TRIES):
        began = time.monotonic()
        _, tokens, finished = await client.whole(ask(TOKENS))
        assert time.monotonic() - began < LIMIT_S
        assert tokens == right
        if finished.events:
            break
    assert any(killed.hex()[:8] in event for event in finished.events), finished.events
    assert killed not in {member.record.node for member in observer.members()}
