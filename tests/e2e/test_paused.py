"""A process that is stopped for seconds, as a laptop's lid does it: nobody takes it for dead."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.lives import Watch, until
from tests.services.tiny_model import LAYERS, make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PAUSE_S = 5.0
AFTER_S = 10.0
"""Longer than anybody's suspicion lasts, so that a wrong one would have become a death."""
REPLAN = ("claims", "is giving up", "gave up", "is loading", "died", "left")


async def test_a_host_stopped_for_seconds_keeps_its_slice_and_accuses_nobody(
    tmp_path: Path,
) -> None:
    model = make_tiny_model(tmp_path / "tiny")
    async with Watch(tmp_path, model.path) as watch:
        sentinel = await watch.start("sentinel")
        half = ("--bootstrap", sentinel.address, "--max-layers", str(LAYERS // 2))
        for number in range(3):
            await watch.start_ready(f"host-{number}", *half)
        hosts = [life for life in watch.lives if life.name != "sentinel"]
        slices = {life.node: life.samples[-1][1].slice for life in hosts}
        held = list(slices.values())
        # Two hold the same; the third alone holds its half, and one of the two could take it.
        stopped = next(life for life in hosts if held.count(slices[life.node]) == 1)
        began = time.time()
        await watch.pause(stopped.name, PAUSE_S)
        went_on = time.time()
        nodes = {life.node for life in watch.lives}
        everybody = dict.fromkeys(nodes, "alive")
        back_s = await until(
            lambda: all(life.standing(went_on) == everybody for life in watch.lives), 20
        )
        await asyncio.sleep(AFTER_S)
        assert back_s < 5
        assert not list(watch.deaths_told())
        for life in watch.lives:
            assert not life.held_dead
            since = [event.text for event in life.events if event.at > began]
            assert not [text for text in since if any(word in text for word in REPLAN)]
            assert life.standing() == everybody
        assert {life.node: life.samples[-1][1].slice for life in hosts} == slices
