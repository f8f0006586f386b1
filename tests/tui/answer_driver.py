"""Answers alone on a screen: what is drawn of them without the rest of the app."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from textual.app import App

from diffuse_tui.app import DiffuseApp
from diffuse_tui.widgets.code_walk import CodeWalk
from diffuse_tui.widgets.theme import DARK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.app import ComposeResult
    from textual.pilot import Pilot

    from diffuse_tui.widgets.copying import Copied
    from diffuse_tui.widgets.turn import TurnView


class AnswerApp(App[None]):
    """A conversation with the turns that it is given."""

    CSS_PATH = [  # noqa: RUF012 - Textual's type
        f"../../diffuse_tui/{name}" for name in DiffuseApp.CSS_PATH
    ]

    def __init__(self, turns: tuple[TurnView, ...]) -> None:
        super().__init__()
        self.turns = turns
        self.told: list[str] = []
        self.register_theme(DARK)
        self.theme = DARK.name
        self.animation_level = "none"

    def compose(self) -> ComposeResult:
        with CodeWalk(id="conversation"):
            yield from self.turns

    def on_mount(self) -> None:
        self.query_one(CodeWalk).anchor()

    def on_copied(self, message: Copied) -> None:
        self.told.append(message.what)


@contextlib.asynccontextmanager
async def drawn(*turns: TurnView, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    async with AnswerApp(turns).run_test(size=size) as pilot:
        yield pilot
