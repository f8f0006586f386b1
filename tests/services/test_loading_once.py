"""However many ask at once, a tokenizer is fetched and loaded once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.errors import ModelUnusable
from diffuse_core.services.bundles import BundleFetcher
from tests.services.cluster import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.ports import Tokenizer

PATIENCE_S = 5.0


class Loading:
    """Loads tokenizers when it may, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self.may = threading.Event()
        self.fails = False
        self._loop = asyncio.get_running_loop()

    def __call__(self, bundle: Bundle) -> Tokenizer:
        self.count += 1
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.may.wait(PATIENCE_S)
        if self.fails:
            raise ModelUnusable("it is none")
        return tokenizer_of(bundle)


async def test_many_at_once_share_one_load(split: Callable, tmp_path: Path) -> None:
    cluster = await split(1)
    model = cluster.hosts[0].service.model
    load = Loading()
    load.may.set()
    fetching = BundleFetcher(await cluster.observer(), FileStorage(tmp_path), load)
    got = await asyncio.gather(*(fetching.tokenizer(model) for _ in range(16)))
    assert load.count == 1
    assert len(set(map(id, got))) == 1


async def test_who_goes_away_leaves_the_load_to_the_next(split: Callable, tmp_path: Path) -> None:
    cluster = await split(1)
    model = cluster.hosts[0].service.model
    load = Loading()
    fetching = BundleFetcher(await cluster.observer(), FileStorage(tmp_path), load)
    for _ in range(5):
        gone = asyncio.create_task(fetching.tokenizer(model))
        async with asyncio.timeout(PATIENCE_S):
            await load.begun.wait()
        # Let it get as far as waiting for the load.
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    load.may.set()
    assert (await fetching.tokenizer(model)).encode("w3") == (3,)
    assert load.count == 1


async def test_a_load_that_failed_is_tried_again(split: Callable, tmp_path: Path) -> None:
    cluster = await split(1)
    model = cluster.hosts[0].service.model
    load = Loading()
    load.may.set()
    load.fails = True
    fetching = BundleFetcher(await cluster.observer(), FileStorage(tmp_path), load)
    for _ in range(2):
        with pytest.raises(ModelUnusable):
            await fetching.tokenizer(model)
    load.fails = False
    assert (await fetching.tokenizer(model)).encode("w3") == (3,)
    assert load.count == 3
