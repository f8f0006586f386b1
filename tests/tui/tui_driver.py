"""Driving the app in tests: run it over a fake node, wait, read the screen, ask."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from textual.events import Key
from textual.widgets import Static
from tui_fakes import FakeAttachment, Node, served

from diffuse_tui.app import DiffuseApp
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot


WIDE = (120, 40)
NARROW = (80, 24)


@contextlib.asynccontextmanager
async def running(
    there: Node, size: tuple[int, int] = WIDE, **more: object
) -> AsyncIterator[Pilot[None]]:
    app = DiffuseApp(there.attach, retry=(0.01,), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield pilot


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until `condition` holds; the deadline is a failure, not a wait."""
    async with asyncio.timeout(15):
        while not condition():
            await pilot.pause()


def at_once(pilot: Pilot[None], *keys: str) -> None:
    """Keys that come faster than the app takes them, as from a terminal that lags."""
    for key in keys:
        pilot.app.post_message(Key(key, key if len(key) == 1 else None))


def screen_text(pilot: Pilot[None]) -> str:
    """All that is on the screen, as text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def shown(pilot: Pilot[None], text: str) -> None:
    await until(pilot, lambda: text in screen_text(pilot))


async def ask(pilot: Pilot[None], there: FakeAttachment, text: str) -> None:
    count = len(there.generations)
    pilot.app.query_one(Prompt).focus()
    pilot.app.query_one(Prompt).insert(text)
    await pilot.press("enter")
    await until(pilot, lambda: len(there.generations) > count)


async def ready(pilot: Pilot[None], there: Node) -> FakeAttachment:
    there.first.show(served())
    await shown(pilot, "Fragile: every layer has only one holder")
    return there.first


def idle(pilot: Pilot[None]) -> Callable[[], bool]:
    return lambda: not pilot.app.query_one(ChatPane).busy


def turn_feet(pilot: Pilot[None]) -> list[str]:
    return [str(foot.visual) for foot in pilot.app.query(".foot").results(Static)]
