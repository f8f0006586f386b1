"""A host asked prompts of every length stays as large as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from diffuse_core import wiring
from diffuse_core.domain.view import GenerateRequest
from tests.e2e.lives import Watch
from tests.e2e.own_cache import own_cache
from tests.services.tiny_model import make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
LENGTHS = 110


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_prompts_of_all_lengths_do_not_make_a_host_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    model = make_tiny_model(tmp_path / "tiny")
    async with Watch(tmp_path, model.path) as watch:
        host = await watch.start_ready("host-0")
        process = psutil.Process(host.pid)
        async with wiring.observe((host.address,), watch.network) as (_, client):
            sizes = []
            for length in range(1, LENGTHS + 1):
                ask = GenerateRequest(
                    model="tiny", raw=words(length), max_tokens=2, ignore_eos=True
                )
                await client.whole(ask)
                sizes.append(process.memory_info().rss / MIB)
    # Code for a new number of rows is made and kept, of so many numbers only: 300 MiB otherwise.
    assert sizes[-1] - sizes[0] < 60
    assert sizes[-1] - sizes[LENGTHS // 2] < 15
