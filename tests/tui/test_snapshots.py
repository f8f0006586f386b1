"""Every screen in its states, in three sizes, cell for cell and colour for colour."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
import tui_snapshots
from tui_scenes import SCENES, Scene

from diffuse_tui.app import DiffuseApp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

DRAWN_WITH = "8.2.8"
"""The pictures are those of one version of Textual; another may draw a frame otherwise."""


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone is one, and a slow machine is no node that says nothing."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("diffuse_tui.screens.main.STALL_S", 3600.0)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.timeout(200)
@pytest.mark.skipif(version("textual") != DRAWN_WITH, reason=f"drawn with Textual {DRAWN_WITH}")
@pytest.mark.parametrize("name", SCENES)
async def test_a_screen_looks_as_it_did(name: str, tmp_path: Path) -> None:
    scene: Scene = SCENES[name]
    app = DiffuseApp(scene.attach, **scene.more(tmp_path))
    async with app.run_test(size=tui_snapshots.SIZES[0]) as pilot:
        await tui_snapshots.settled(pilot)
        if scene.act is not None:
            await scene.act(pilot)
        assert not tui_snapshots.blinking(pilot)
        wrong = await tui_snapshots.check(pilot, name, tmp_path)
    assert not wrong, "\n\n".join(wrong)
