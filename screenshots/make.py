"""Render the app's screens to SVG and PNG beside this script.

    python screenshots/make.py [--literal] [--only NAME | --all] [--out DIR]

The pictures are the same on every run: clock, time zone and sizes are fixed. Scenes take any
Attachment; `capture` is the part to reuse when the views come from a live network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ["TZ"] = "UTC"
time.tzset()

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import literal  # noqa: E402

from diffuse_tui.app import DiffuseApp  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot

    from diffuse_core.ports import Attachment


class Scene(NamedTuple):
    """A picture: what is attached, how large, and what is done before it is taken."""

    attach: Callable[[], Awaitable[Attachment]]
    size: tuple[int, int]
    act: Callable[[Pilot[None]], Awaitable[None]] | None = None


def capture(app: DiffuseApp, path: Path) -> Path:
    """Write what `app` shows now as SVG, and as PNG beside it; the PNG's path is given back."""
    import resvg_py

    svg = app.export_screenshot(title="diffuse-tui")
    path.with_suffix(".svg").write_text(svg)
    png = path.with_suffix(".png")
    png.write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=svg, monospace_family=_FONT)))
    return png


_FONT = "DejaVu Sans Mono"


def literally(view: object, answer: str = literal.ANSWER) -> Callable[[], Awaitable[Attachment]]:
    """Attach to a literal view."""

    async def attach() -> Attachment:
        return literal.LiteralAttachment(view, answer)

    return attach


async def chat(pilot: Pilot[None]) -> None:
    """Ask one question and wait for the whole answer."""
    await pilot.press("f3")
    for letter in "What is the capital of France?":
        await pilot.press({" ": "space", "?": "question_mark"}.get(letter, letter))
    await pilot.press("enter")
    pane = pilot.app.query_one("#chat")
    for _ in range(200):
        await pilot.pause(0.05)
        if not pane.busy:
            break
    await pilot.pause(0.3)


def pressing(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Just press keys."""

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await pilot.pause(0.1)

    return act


async def _unreachable() -> Attachment:
    from diffuse_core.errors import Unreachable

    raise Unreachable("no node answers at 127.0.0.1:9440; start one with `diffuse host`")


SCENES: dict[str, Scene] = {
    "overview": Scene(literally(literal.fragile()), (120, 40), chat),
    "robust-200x60": Scene(literally(literal.robust()), (200, 60), chat),
    "incomplete": Scene(literally(literal.incomplete()), (120, 40)),
    "network-80x24": Scene(literally(literal.fragile()), (80, 24)),
    "gap-80x24": Scene(literally(literal.incomplete()), (80, 24)),
    "chat-80x24": Scene(literally(literal.robust()), (80, 24), chat),
    "machine-80x24": Scene(literally(literal.robust()), (80, 24), pressing("f4")),
    "network-40x12": Scene(literally(literal.fragile()), (40, 12)),
    "chat-40x12": Scene(literally(literal.fragile()), (40, 12), chat),
    "large": Scene(literally(literal.large()), (120, 40)),
    "help": Scene(literally(literal.robust()), (120, 40), pressing("f1")),
    "models": Scene(literally(literal.robust()), (120, 40), pressing("f5")),
    "disconnected": Scene(_unreachable, (120, 40)),
}


PUBLISHED = ("overview", "incomplete", "network-80x24", "chat-80x24")


async def render(scene: Scene, path: Path) -> Path:
    """Run one scene to its picture."""
    app = DiffuseApp(scene.attach)
    async with app.run_test(size=scene.size) as pilot:
        await pilot.pause(0.2)
        if scene.act is not None:
            await scene.act(pilot)
        await pilot.pause(0.1)
        return capture(app, path)


def main() -> None:
    """Render all scenes, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--literal", action="store_true", default=True, help="made-up views")
    parser.add_argument("--only", choices=sorted(SCENES))
    parser.add_argument("--all", action="store_true", help="also what is not published")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        wanted = name == options.only if options.only else options.all or name in PUBLISHED
        if wanted:
            print(asyncio.run(render(scene, options.out / name)))


if __name__ == "__main__":
    main()
