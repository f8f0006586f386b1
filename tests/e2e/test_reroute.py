"""A stage that is gone is replaced by the client at once, before gossip has found it dead."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.view import GenerateRequest
from tests.e2e.lives import Watch
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOKENS = 8
TRIES = 20
LIMIT_S = 2.0


async def test_after_kill_9_of_a_stage_the_next_generation_succeeds_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path / "cache"))
    model = make_tiny_model(tmp_path / "tiny")
    ask = GenerateRequest(model="tiny", raw=words(5), max_tokens=TOKENS, ignore_eos=True)
    right = model.says(ids(5), TOKENS, ignore_eos=True)
    async with Watch(tmp_path, model.path) as watch:
        sentinel = await watch.start("sentinel")
        half = ("--bootstrap", sentinel.address, "--max-layers", str(LAYERS // 2))
        for number in range(4):
            await watch.start_ready(f"host-{number}", *half)
        async with wiring.observe((sentinel.address,), watch.network) as (observer, client):
            assert all(model.min_replicas == 2 for model in observer.view().models)
            assert (await client.whole(ask))[1] == right
            await watch.end("host-2", signal.SIGKILL)
            killed = NodeId(bytes.fromhex(watch.life("host-2").node))
            # Of two replicas a route takes either; this goes on until the dead one was tried.
            for _ in range(TRIES):
                began = time.monotonic()
                _, tokens, finished = await client.whole(ask)
                assert time.monotonic() - began < LIMIT_S
                assert tokens == right
                if finished.events:
                    break
            assert any(killed.hex()[:8] in event for event in finished.events), finished.events
            assert killed not in {member.record.node for member in observer.members()}
