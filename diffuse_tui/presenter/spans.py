"""Text with a meaning: what the presenter hands to widgets, before any colour is chosen."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal[
    "plain", "dim", "strong", "good", "warning", "bad", "accent", "alarm", "label", "mine"
]
"""What a piece of text means. Colour only ever repeats what shape or word already says."""


class Span(NamedTuple):
    """A piece of one line and its tone."""

    text: str
    tone: Tone = "plain"


Line = tuple[Span, ...]
"""One line of a screen."""


def plain(line: Line) -> str:
    """The text of a line without its tones."""
    return "".join(span.text for span in line)


def merged(cells: list[Span]) -> Line:
    """Join neighbours of equal tone, so that a line costs few segments."""
    joined: list[Span] = []
    for span in cells:
        if joined and joined[-1].tone == span.tone:
            joined[-1] = Span(joined[-1].text + span.text, span.tone)
        elif span.text:
            joined.append(span)
    return tuple(joined)
