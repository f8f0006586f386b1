"""A monkey at the keyboard and the mouse, while all that is shown is hostile.

DIFFUSE_MONKEY=FIRST-LAST tries these seeds in the place of the few that are tried always.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import TYPE_CHECKING

import pytest
from textual.events import Key as Press
from textual.events import MouseDown, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp, Paste
from tui_desk import FakeDesk
from tui_fakes import Node, served
from tui_hostile import Hostile

from diffuse_core.errors import ChannelClosed, DiffuseError, Unreachable
from diffuse_tui.app import DiffuseApp

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

FIRST, _, LAST = os.environ.get("DIFFUSE_MONKEY", "1-3").partition("-")
SECONDS = 7.0
"""How long one monkey plays."""

SIZES = ((1, 1), (2, 1), (1, 40), (59, 17), (60, 18), (80, 24), (110, 28), (120, 40), (200, 60))
NAMED = (
    *(f"f{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "shift+up"),
    *("enter", "enter", "enter", "escape", "escape", "tab", "tab", "shift+tab", "space"),
    *("backspace", "delete", "ctrl+n", "ctrl+p", "ctrl+d", "ctrl+u", "ctrl+j", "ctrl+o"),
    *("ctrl+w", "ctrl+k", "ctrl+z", "ctrl+y", "ctrl+x", "ctrl+v", "alt+enter", "ctrl+l"),
)
LETTERS = "abcdefghijklmnoprstuvwxyzGEJKRYABDFLNSTXZ0123456789/?:[].,;-+=<>*~!'\"é日"
TYPED = (
    "/model ",
    "/system be\nbrief",
    "/temperature nan",
    "/export ",
    "/export json x/../y.json",
    "/attach /dev/zero",
    "/attach .",
    "/attach ~",
    "/rename ",
    "/new",
    "/max 1e999",
    "/\0",
    "1e309 x 90TB",
    "ready layer:99999999999999999999",
    "hello",
)


class Monkey:
    """Does one thing after the other, all drawn from the seed."""

    def __init__(self, seed: int, pilot: Pilot[None], there: Node, desk: FakeDesk) -> None:
        self.rng = random.Random(seed)
        self.hostile = Hostile(seed)
        self.pilot, self.there, self.desk = pilot, there, desk
        self.done: list[str] = []
        self._pressed = "q"

    def note(self, what: str) -> None:
        self.done = [*self.done[-60:], what]

    def press(self, key: str, character: str | None = None) -> None:
        # No more than one in a row of the letter that quits.
        self.note(key)
        self.pilot.app._driver.send_message(Press(key, character))

    def keys(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            if self.rng.random() < 0.5:
                self.press(self.rng.choice(NAMED))
            else:
                letter = self.rng.choice(LETTERS)
                self.press(letter, letter)

    def type(self) -> None:
        if self.rng.random() < 0.7:
            self.press("f3")
        for letter in self.rng.choice(TYPED):
            self.press("enter" if letter == "\n" else letter, letter)
        self.press(self.rng.choice(("enter", "tab", "escape")))

    def ask(self) -> None:
        for key in ("escape", "escape", "f3", "ctrl+k"):
            self.press(key)
        self.press("w", "w")
        self.press("enter")

    def paste(self) -> None:
        self.note("paste")
        text = self.rng.choice((self.hostile.text(), "x\n" * 5000, "/attach \n", "y" * 300_000))
        self.pilot.app._driver.send_message(Paste(text))

    def mouse(self) -> None:
        width, height = self.pilot.app.size
        x, y = self.rng.randrange(max(1, width)), self.rng.randrange(max(1, height))
        button = self.rng.choice((1, 1, 1, 2, 3))
        held = {"shift": False, "meta": False, "ctrl": self.rng.random() < 0.1}
        kinds = self.rng.choice(
            (
                (MouseDown, MouseUp),
                (MouseScrollDown,) * 3,
                (MouseScrollUp,),
                (MouseMove,),
                (MouseDown, MouseMove, MouseUp),
                (MouseDown,),
                (MouseUp,),
            )
        )
        for kind in kinds:
            self.note(f"{kind.__name__} {x},{y}")
            event = kind(None, x, y, 0, 0, button, **held, screen_x=x, screen_y=y)
            self.pilot.app._driver.send_message(event)
            if kind is MouseMove:
                x = self.rng.randrange(max(1, width))

    async def resize(self) -> None:
        size = self.rng.choice((*SIZES, (120, 40), (100, 30)))
        self.note(f"resize {size}")
        await self.pilot.resize_terminal(*size)

    def feed(self) -> None:
        """An update, for whoever takes it; or the end of the tie."""
        attachment = self.there.attachments[-1] if self.there.attachments else self.there.first
        if self.rng.random() < 0.06:
            self.note("the feed breaks")
            attachment.feed.put_nowait(ChannelClosed(self.hostile.text()))
            if self.rng.random() < 0.5:
                self.there.errors.append(self.rng.choice((Unreachable("no"), OSError(13, "no"))))
        elif self.rng.random() < 0.3:
            self.note("a sound view")
            attachment.show(served())
        else:
            self.note("update")
            attachment.feed.put_nowait(self.hostile.update())

    def answer(self) -> None:
        for attachment in self.there.attachments:
            for generation in attachment.generations[-2:]:
                for _ in range(self.rng.randrange(6)):
                    self.note("answer")
                    generation.events.put_nowait(self.hostile.event())
                if self.rng.random() < 0.2:
                    end = self.rng.choice((None, DiffuseError(self.hostile.text())))
                    generation.events.put_nowait(end)

    def host(self) -> None:
        if self.desk._tell is not None:
            self.note("news")
            self.desk.say(self.hostile.news())

    async def play(self, seconds: float) -> int:
        """Go on for so long; how many things were done."""
        acts = (self.keys,) * 8 + (self.mouse,) * 5 + (self.feed,) * 4 + (self.answer,) * 3
        acts += (self.type, self.type, self.ask, self.ask, self.paste, self.host, self.resize)
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            done = self.rng.choice(acts)()
            if done is not None:
                await done
            number += 1
            if self.rng.random() < 0.5:
                await self.pilot.pause()
            if self.pilot.app._exception is not None:
                break
        return number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST or FIRST) + 1))
async def test_nothing_that_is_pressed_or_sent_ends_the_app(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    there, desk = Node(), FakeDesk()
    app = DiffuseApp(
        there.attach,
        retry=(0.01,),
        desk=lambda: desk,
        state=tmp_path / "state",
        history=tmp_path / "chats.db",
    )
    left: list[object] = []
    monkeypatch.setattr(app, "exit", lambda *_, **more: left.append(more))
    there.first.show(served())
    monkey = None
    try:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            monkey = Monkey(seed, pilot, there, desk)
            async with asyncio.timeout(SECONDS * 10):
                done = await monkey.play(SECONDS)
                await pilot.resize_terminal(120, 40)
                await pilot.pause()
            assert app._exception is None
    except BaseException:
        sys.stdout.write(f"seed {seed}; the last: {monkey.done if monkey else '-'}\n")
        raise
    sys.stdout.write(f"seed {seed}: {done} things done\n")
