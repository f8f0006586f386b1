"""The screens that are kept as pictures, and how each is reached."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import tui_literal
from tui_archive import put_turn
from tui_desk import FakeDesk
from tui_driver import until

from diffuse_core.errors import Unreachable
from diffuse_tui.archive.store import Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from textual.pilot import Pilot

    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Attachment

    Act = Callable[[Pilot[None]], Awaitable[None]]

FOREVER = (3600.0,)
"""Between attempts to attach: what is shown in between is the picture."""


class Scene(NamedTuple):
    """One picture. `more` gives the app's other arguments, with a folder to write into."""

    attach: Callable[[], Awaitable[Attachment]]
    act: Act | None = None
    more: Callable[[Path], dict[str, Any]] = lambda _place: {}


def literally(view: NetworkView, **more: Any) -> Callable[[], Any]:
    """Attach to a literal view."""

    async def attach() -> tui_literal.LiteralAttachment:
        return tui_literal.LiteralAttachment(view, **more)

    return attach


async def chat(pilot: Pilot[None]) -> None:
    """Ask one question and wait for the whole answer."""
    await type_in(pilot, "What is the capital of France?")
    await pilot.press("enter")
    pane = pilot.app.screen_stack[0].query_one("#chat")
    await until(pilot, lambda: pane.busy or bool(pilot.app.query("TurnView")))
    await until(pilot, lambda: not pane.busy)


async def type_in(pilot: Pilot[None], text: str) -> None:
    """Put text into the prompt."""
    await pilot.press("f3")
    pilot.app.screen_stack[0].query_one(Prompt).insert(text)


def typing(text: str) -> Act:
    """Text in the prompt, not sent."""

    async def act(pilot: Pilot[None]) -> None:
        await type_in(pilot, text)

    return act


def pressing(*keys: str, first: Act | None = None) -> Act:
    """Press keys, after something else."""

    async def act(pilot: Pilot[None]) -> None:
        if first is not None:
            await first(pilot)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    return act


async def _unreachable() -> Attachment:
    raise Unreachable("no node answers at 127.0.0.1:9440; start one with `diffuse host`")


async def _never() -> Attachment:
    await asyncio.Event().wait()
    raise AssertionError


def _kept(place: Path, *, cut: bool = False) -> dict[str, Any]:
    """Conversations of earlier days; the last one was cut off by the end of the app."""
    archive = Archive(place / "chats.db")
    now = time.time()
    for number, (question, answer) in enumerate(
        (
            ("What is a lighthouse for?", "It **warns ships** of rocks."),
            (
                "Write a haiku about rain",
                "Soft rain on the roof\nthe cat counts the drops",
            ),
            ("How do I reverse a list in Python?", "```python\nitems[::-1]\n```"),
        )
    ):
        at = now - 86_400 * (4 - number) - 60
        model = f"{tui_literal.MODEL}@{tui_literal.FINGERPRINT}"
        dialogue = archive.create(model, "", Params(), at)
        last = cut and number == 2
        turn = KeptTurn(
            number=0,
            question=question,
            answer=answer,
            state="streaming" if last else "done",
            model=model,
            note="" if last else "12 tokens · first after 0.20 s · 30.0 tokens/s",
            at=at,
        )
        put_turn(archive, dialogue, turn, at)
    archive.close()
    return {"history": place / "chats.db"}


def _memory(_place: Path) -> dict[str, Any]:
    return {"history": ":memory:"}


def _hosting(_place: Path) -> dict[str, Any]:
    return {"desk": FakeDesk}


def _themed(name: str) -> Callable[[Path], dict[str, Any]]:
    return lambda _place: {"theme": name}


FRAGILE = tui_literal.fragile()
MINUTE = literally(FRAGILE, seconds=60)
PASTE = "\n".join(f"line {number} of something long" for number in range(300))


async def _paste(pilot: Pilot[None]) -> None:
    from textual.events import Paste

    await type_in(pilot, "Sum this up: ")
    pilot.app.screen_stack[0].query_one(Prompt).post_message(Paste(PASTE))
    await pilot.pause()


SCENES: dict[str, Scene] = {
    # The main screen and its pages.
    "answer": Scene(MINUTE, chat),
    "answer-healed": Scene(literally(FRAGILE, heals=True), chat),
    "answer-light": Scene(MINUTE, chat, _themed("light")),
    "answer-contrast": Scene(MINUTE, chat, _themed("contrast")),
    "answer-ansi": Scene(MINUTE, chat, _themed("ansi")),
    "network-robust": Scene(literally(tui_literal.robust(), seconds=60), pressing("f2")),
    "network-fragile": Scene(literally(FRAGILE), pressing("f2")),
    "network-gap": Scene(literally(tui_literal.incomplete()), pressing("f2")),
    "network-400": Scene(literally(tui_literal.large()), pressing("f2")),
    "network-filter": Scene(
        literally(tui_literal.large()), pressing("f2", "/", *"ready layer:14", "enter")
    ),
    "machine": Scene(MINUTE, pressing("f4")),
    "machine-large": Scene(MINUTE, pressing("f4", "shift+tab", "z")),
    "events-warnings": Scene(MINUTE, pressing("f4", "l", "l")),
    # Without a network, or one without a model.
    "connecting": Scene(_never),
    "disconnected": Scene(_unreachable, None, lambda _place: {"retry": FOREVER}),
    "alone": Scene(literally(tui_literal.alone())),
    "no-model": Scene(literally(tui_literal.empty()), pressing("f2")),
    # The prompt.
    "prompt-commands": Scene(MINUTE, typing("/")),
    "prompt-paste": Scene(MINUTE, _paste),
    "answer-cut": Scene(MINUTE, None, lambda place: _kept(place, cut=True)),
    # Full screens.
    "node": Scene(MINUTE, pressing("f2", "enter")),
    "what-if": Scene(literally(tui_literal.robust()), pressing("f6", "space", "j", "space")),
    "what-if-more": Scene(literally(FRAGILE), pressing("f6", "a", *"2 x 90MB", "enter")),
    "host": Scene(MINUTE, pressing("f7"), _hosting),
    "host-form": Scene(literally(tui_literal.looked_at()), pressing("f7"), _hosting),
    "conversations": Scene(MINUTE, pressing("f8"), _kept),
    "conversations-none": Scene(MINUTE, pressing("f8"), _memory),
    "conversations-search": Scene(MINUTE, pressing("f8", "/", *"rain"), _kept),
    "parameters": Scene(MINUTE, pressing("f9")),
    "parameters-wrong": Scene(MINUTE, pressing("f9", "tab", "x", "enter")),
    "waterfall": Scene(MINUTE, pressing("escape", "v", "j", "j", first=chat)),
    # Small ones over it.
    "help": Scene(MINUTE, pressing("f1")),
    "help-waterfall": Scene(MINUTE, pressing("escape", "v", "f1", first=chat)),
    "models": Scene(literally(tui_literal.many_models()), pressing("f5")),
    "palette": Scene(MINUTE, pressing("escape", "colon", *"theme")),
}
