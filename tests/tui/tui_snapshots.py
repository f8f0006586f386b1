"""Comparing what the app shows, as SVG, with the picture of it that is kept beside the tests.

    DIFFUSE_UPDATE_SNAPSHOTS=1 pytest tests/tui/test_snapshots.py      # draw them anew, then look

Not pytest-textual-snapshot: it holds pytest below 9.
"""

from __future__ import annotations

import asyncio
import difflib
import html
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip
    from textual.widget import Widget
    from textual.widgets import Input, TextArea

KEPT = Path(__file__).parent / "snapshots"
UPDATE = "DIFFUSE_UPDATE_SNAPSHOTS"
SIZES = ((80, 24), (120, 40), (200, 60))

_ID = re.compile(r"terminal-(\d+)-")
_TEXT = re.compile(r'x="([\d.]+)"[^>]*clip-path="url\(#t-line-(\d+)\)"[^>]*>([^<]*)</text>')


def picture(pilot: Pilot[None]) -> str:
    """The screen as SVG; the prefix of its ids, which is a hash of the whole, taken out."""
    svg = pilot.app.export_screenshot(title="diffuse-tui")
    return _ID.sub("t-", svg)


async def settled(pilot: Pilot[None]) -> str:
    """The picture once it no longer changes."""
    before: list[Strip] = []
    async with asyncio.timeout(10):
        # The strips are what the picture is made of, at a fifth of its cost.
        while (now := pilot.app.screen._compositor.render_strips()) != before:
            before = now
            await pilot.pause()
            await pilot.pause()
    return picture(pilot)


def blinking(pilot: Pilot[None]) -> list[Widget]:
    """Fields whose cursor blinks: an idle app draws for them, and no picture of them lasts."""
    fields = pilot.app.screen.query("Input, TextArea")
    return [field for field in fields if cast("Input | TextArea", field).cursor_blink]


def text_of(svg: str) -> list[str]:
    """The lines of text in a picture, their columns roughly kept."""
    lines: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
    for x, line, text in _TEXT.findall(svg):
        lines[int(line)].append((float(x), html.unescape(text)))
    return ["".join(text for _, text in sorted(lines[line])) for line in sorted(lines)]


async def check(pilot: Pilot[None], name: str, failed: Path) -> list[str]:
    """Compare the screen with the picture `name` in every size; what differs, in words."""
    wrong: list[str] = []
    for width, height in SIZES:
        await pilot.resize_terminal(width, height)
        svg = await settled(pilot)
        kept = KEPT / f"{name}-{width}x{height}.svg"
        if os.environ.get(UPDATE):
            kept.write_text(svg, encoding="utf-8")
            continue
        expected = kept.read_text(encoding="utf-8") if kept.exists() else ""
        if svg != expected:
            drawn = failed / kept.name
            drawn.write_text(svg, encoding="utf-8")
            diff = difflib.unified_diff(text_of(expected), text_of(svg), "kept", "now", n=0)
            told = "\n".join(diff) or "the words are the same, the colours are not"
            wrong.append(f"{kept.name} differs; drawn now: {drawn}\n{told}")
    return wrong
