"""Events of the network as lines: time, level, text; and which of them are shown."""

from __future__ import annotations

from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.spans import Line, Span, plain

if TYPE_CHECKING:
    from diffuse_core.domain.view import Event, EventLevel
    from diffuse_tui.presenter.spans import Tone

LEVEL: dict[EventLevel, tuple[str, Tone]] = {
    "info": ("·", "dim"),
    "good": ("✔", "good"),
    "warning": ("▲", "warning"),
    "error": ("✖", "bad"),
}

SHOWN: tuple[tuple[str, frozenset[EventLevel]], ...] = (
    ("all", frozenset(LEVEL)),
    ("good and bad news", frozenset(("good", "warning", "error"))),
    ("warnings and errors", frozenset(("warning", "error"))),
    ("errors", frozenset(("error",))),
)
"""What `l` goes through."""

LEAST_TEXT = 8
"""Cells that an event's text has at least, however narrow the screen."""


class EventFilter(NamedTuple):
    """Which events are shown: those of a choice of levels that have all `words` in them."""

    level: int = 0
    words: str = ""

    def passes(self, event: Event) -> bool:
        """Whether `event` is shown."""
        if event.level not in SHOWN[self.level][1]:
            return False
        text = event.text.casefold()
        return all(word in text for word in self.words.casefold().split())

    def next_level(self) -> EventFilter:
        """The next choice of levels; after the last, all again."""
        return self._replace(level=(self.level + 1) % len(SHOWN))

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.level and not self.words.strip()

    def told(self) -> str:
        """What is left, in words; nothing when that is everything."""
        parts = [SHOWN[self.level][0]] if self.level else []
        if self.words.strip():
            parts.append(f"/{clean_line(self.words.strip(), 24)}")
        return " · ".join(parts)


def event_line(event: Event, now: float) -> Line:
    """`14:03:22 ✔ text`, in local time; the day in place of the seconds when it is not today."""
    glyph, tone = LEVEL[event.level]
    return (
        Span(f" {_when(event.at, now)} ", "dim"),
        Span(f"{glyph} ", tone),
        Span(clean_line(event.text), tone if event.level == "error" else "plain"),
    )


def wrapped_event(event: Event, width: int, now: float) -> tuple[Line, ...]:
    """The event over as many lines of `width` cells as its text needs, words kept whole."""
    time, glyph, text = event_line(event, now)
    indent = len(time.text) + len(glyph.text)
    pieces = wrap(text.text, max(LEAST_TEXT, width - indent)) or [""]
    first = (time, glyph, Span(pieces[0], text.tone))
    return (first, *((Span(" " * indent), Span(piece, text.tone)) for piece in pieces[1:]))


def event_text(event: Event, now: float) -> str:
    """The event on one line, as it is copied."""
    return plain(event_line(event, now)).strip()


def day(at: float) -> str:
    """The local day of a moment; nothing for one that no calendar has."""
    return _local(at, "%Y-%m-%d")


def _when(at: float, now: float) -> str:
    if day(at) == day(now):
        return _local(at, "%H:%M:%S") or "--:--:--"
    return _local(at, "%d %b %H:%M") or "--:--:--"


def _local(at: float, pattern: str) -> str:
    try:
        return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime(pattern)
    except (OverflowError, OSError, ValueError):
        return ""
