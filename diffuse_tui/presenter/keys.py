"""The keys, as the help screen lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_tui.presenter.spans import Tone

KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Everywhere",
        (
            ("F2  n", "the network: coverage map and replicas"),
            ("F3  c", "the chat"),
            ("F4  e", "this machine and the events"),
            ("Tab  Shift+Tab", "next or previous part of the screen"),
            ("F5  m", "choose the model"),
            ("r", "connect to the node again at once"),
            ("s", "start a node here, when the one that was attached to has ended"),
            ("F1  ?", "this help"),
            ("Ctrl+Q", "quit at once; q twice or Ctrl+C twice do the same"),
        ),
    ),
    (
        "Network",
        (("Enter", "all that is known of the node under the cursor"),),
    ),
    (
        "Chat",
        (
            ("Enter", "send; while an answer runs, one question waits"),
            ("Alt+Enter  Ctrl+J", "new line"),
            ("Esc", "stop the answer on every host; else leave the prompt"),
            ("Up  Down", "earlier questions"),
            ("Ctrl+N", "new conversation"),
            ("y", "copy the last answer"),
        ),
    ),
)
_NOTE = "Letters work outside the prompt; Esc leaves it."

_SHAPES: tuple[tuple[str, Tone, str], ...] = (
    ("█", "good", "a ready host holds these layers"),
    ("▒", "warning", "a host is loading them"),
    ("┄", "dim", "a host has claimed them"),
    ("▚", "dim", "a host is leaving with them"),
    ("?", "warning", "the host does not answer just now"),
    ("░", "bad", "nobody holds them: the model cannot answer"),
    ("E H", "good", "embedding and head, at the model's ends"),
    ("*", "mine", "this node"),
    ("⇄", "dim", "relayed: the node is met through sentinels"),
)
_WORDS: tuple[tuple[str, Tone, str, str], ...] = (
    ("●", "good", "Robust", "every layer has at least the target number of holders"),
    ("◐", "warning", "Fragile", "covered, but some layer has fewer"),
    ("○", "bad", "Incomplete", "some layers are held by nobody"),
)


def help_lines() -> tuple[Line, ...]:
    """The whole help text."""
    lines: list[Line] = []
    for heading, keys in KEYS:
        lines.append((Span(heading, "strong"),))
        lines += [(Span(f"  {key:<19}", "accent"), Span(what)) for key, what in keys]
        lines.append(())
    lines.append((Span(_NOTE, "dim"),))
    lines.append(())
    lines.append((Span("Coverage", "strong"),))
    for glyph, tone, word, meaning in _WORDS:
        lines.append((Span(f"  {glyph} {word:<17}", tone), Span(meaning)))
    lines += [(Span(f"  {glyph:<19}", tone), Span(meaning)) for glyph, tone, meaning in _SHAPES]
    return tuple(lines)
