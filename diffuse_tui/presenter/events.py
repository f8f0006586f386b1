"""Events of the network as lines: time, level, text."""

from __future__ import annotations

from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_core.domain.view import Event, EventLevel
    from diffuse_tui.presenter.spans import Tone

LEVEL: dict[EventLevel, tuple[str, Tone]] = {
    "info": ("·", "dim"),
    "good": ("✔", "good"),
    "warning": ("▲", "warning"),
    "error": ("✖", "bad"),
}
INDENT = 12
"""Cells before an event's text; continuation lines start there."""


def event_line(event: Event) -> Line:
    """`14:03:22 ✔ text`, in local time."""
    glyph, tone = LEVEL[event.level]
    return (
        Span(f" {_clock(event.at)} ", "dim"),
        Span(f"{glyph} ", tone),
        Span(clean_line(event.text), tone if event.level == "error" else "plain"),
    )


def wrapped_event(event: Event, width: int) -> tuple[Line, ...]:
    """The event over as many lines of `width` cells as its text needs, words kept whole."""
    time, glyph, text = event_line(event)
    pieces = wrap(text.text, max(8, width - INDENT)) or [""]
    first = (time, glyph, Span(pieces[0], text.tone))
    return (first, *((Span(" " * INDENT), Span(piece, text.tone)) for piece in pieces[1:]))


def _clock(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "--:--:--"
