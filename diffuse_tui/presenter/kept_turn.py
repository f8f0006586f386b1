"""Turns from before, and questions of any length: what of them is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean
from diffuse_tui.presenter.rich_text import Run, wrap
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_tui.presenter.dialogue import KeptTurn, TurnState
    from diffuse_tui.presenter.rich_text import Row

MAX_QUESTION_LINES = 12
MAX_QUESTION_CHARS = 1_200
MAX_NOTE_LINES = 24
MAX_PREVIEW_CHARS = 64_000
"""Of an answer that was not seen yet, what its height is reckoned from."""

_STATES: dict[TurnState, Span] = {
    "stopped": Span("■ stopped", "warning"),
    "failed": Span("✖ failed", "bad"),
    "cut": Span("▲ cut: the app ended while this was written", "warning"),
    "streaming": Span("▲ cut: the app ended while this was written", "warning"),
}


def question_text(question: str) -> str:
    """What is shown of a question: all, or its beginning and how much more there is."""
    lines = question[:MAX_QUESTION_CHARS].split("\n")[:MAX_QUESTION_LINES]
    shown = "\n".join(lines)
    if len(shown) == len(question):
        return clean(question)
    more = question.count("\n", len(shown))
    size = len(question.encode("utf-8", "replace"))
    told = f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"
    return f"{clean(shown)}\n… {more} more line{'' if more == 1 else 's'}, {told} in all"


def kept_foot(turn: KeptTurn) -> tuple[Line, ...]:
    """What is said under a turn from before: how it ended, unless well, and its note."""
    noted = [line for line in clean(turn.note).split("\n") if line][:MAX_NOTE_LINES]
    state = _STATES.get(turn.state)
    lines: list[Line] = []
    # A note of before may tell it already.
    if state is not None and not any(line.startswith(state.text[:1]) for line in noted):
        lines.append((state,))
    lines += [(Span(line, "bad" if line.startswith("✖") else "dim"),) for line in noted]
    return tuple(lines)


def preview_rows(turn: KeptTurn, width: int) -> list[Row]:
    """A turn as plain text, for as long as nobody looks at it; about as high as it will be."""
    answer = clean(turn.answer[:MAX_PREVIEW_CHARS]).strip("\n")
    rows = wrap((Run(question_text(turn.question)),), max(1, width - 3))
    if answer:
        rows += [*wrap((Run(""),), width), *wrap((Run(answer),), max(1, width - 2))]
    foot = kept_foot(turn)
    if foot:
        text = "\n".join("".join(span.text for span in line) for line in foot)
        rows += [*wrap((Run(""),), width), *wrap((Run(text),), max(1, width - 3))]
    return rows
