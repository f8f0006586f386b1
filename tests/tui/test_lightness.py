"""That the app stays light: it keeps nothing that is gone, and makes nothing anew for nothing."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from textual.dom import DOMNode
from textual.widgets._footer import FooterKey
from tui_driver import ready, running, until
from tui_fakes import Node

if TYPE_CHECKING:
    from pathlib import Path

KEYS_OF_SCREENS = ("f1", "f5", "f6", "f7", "f8", "f9", "colon")


def _nodes() -> Counter[str]:
    gc.collect()
    found = (type(each).__name__ for each in gc.get_objects() if isinstance(each, DOMNode))
    return Counter(name for name in found if name != "ScrollBar")  # Made when first scrolled.


@pytest.mark.slow
async def test_screens_that_were_closed_are_forgotten_with_all_their_widgets(
    tmp_path: Path,
) -> None:
    there = Node()
    async with running(there, history=tmp_path / "chats.db") as pilot:
        await ready(pilot, there)

        async def round_trip() -> None:
            pilot.app.screen.set_focus(pilot.app.screen.query_one("#conversation"))
            for key in KEYS_OF_SCREENS:
                await pilot.press(key)
                await pilot.pause()
                assert len(pilot.app.screen_stack) == 2, key
                await pilot.app.pop_screen()
                await pilot.pause()

        await round_trip()
        before = _nodes()
        await round_trip()
        # What the last one had begun may end a moment after it.
        await until(pilot, lambda: _nodes() - before == Counter())


async def test_the_line_of_keys_is_made_anew_only_for_other_keys() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("f2")
        await pilot.pause()
        keys = list(pilot.app.screen.query(FooterKey))
        assert keys
        focused = pilot.app.screen.focused
        await pilot.press("tab")
        await pilot.pause()
        assert pilot.app.screen.focused is not focused
        assert list(pilot.app.screen.query(FooterKey)) == keys
        await pilot.press("f6")
        await pilot.pause()
        others = [key.description for key in pilot.app.screen.query(FooterKey)]
        assert others
        assert others != [key.description for key in keys]
