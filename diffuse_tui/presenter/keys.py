"""The keys, as the help screen lists them: those that work on the screen that is shown.

Each screen's keys are a `Section` of its own below; whoever gives a screen a key adds it there.
`SECTIONS` maps a screen's name to what its help shows, its own keys first. The name of a full
screen is its `CRUMB`; the main screen's are the names of its pages.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_tui.presenter.spans import Tone


class Section(NamedTuple):
    """Keys that work in one place: pairs of the key and what it does."""

    heading: str
    keys: tuple[tuple[str, str], ...]


# --- the main screen's pages ----------------------------------------------------------------

COVERAGE = Section(
    "Coverage",
    (
        ("↑ ↓  j k  g G", "the cursor over the holders"),
        ("← →  h l", "the cursor over the layers: who holds each; Home, End"),
        ("Enter", "all that is known of the holder; the holders that share a row"),
        ("u", "one row for holders of equal slice and state, or one for each"),
        ("Esc", "no cursor"),
    ),
)
REPLICAS = Section(
    "Replicas",
    (
        ("Enter", "all that is known of the node under the cursor; a click on it does the same"),
        ("↑ ↓  j k", "a row up or down; PgUp PgDn, Ctrl+U Ctrl+D half a page, g G the ends"),
        ("← →", "the columns that have no room, where the heading ends in an arrow"),
        ("/", "filter: id, state, role, version, 12:18, layer:14, relayed; !word leaves out"),
        ("Esc", "every node again"),
        ("< >  1 … 9", "sort by a column; once more inverts, then the slices' order again"),
        ("S", "invert the sort"),
        ("y  Y", "copy the node's id (or what the mouse selected); copy the row"),
    ),
)
MACHINE = Section(
    "This machine and events",
    (
        ("↑ ↓  j k", "the event before or after; g the oldest"),
        ("F  End", "follow the events again"),
        ("/", "leave only events with these words; Esc shows all again"),
        ("l", "leave only some levels: news, warnings and errors, errors"),
        ("y", "copy the event"),
    ),
)
CHAT = Section(
    "Chat",
    (
        ("Enter", "send; while an answer runs, one question waits"),
        ("Alt+Enter  Ctrl+J", "new line"),
        ("Esc", "stop the answer on every host; else leave the prompt"),
        ("Up  Down", "earlier questions"),
        ("/", "commands, as the first letter; Tab or Enter takes, // asks with a slash"),
        ("Ctrl+O", "expand the pasted text before the cursor"),
        ("R", "answer the last question anew; the answer so far is kept"),
        ("E", "edit the last question and ask it anew; Esc leaves it as it was"),
        ("u", "the version before; again: the next"),
        ("y  Y", "copy what is selected or the last answer; its last code block"),
        ("v", "where the last answer's tokens spent their time"),
        ("p  F9", "how answers are made, and the system prompt"),
        ("j k  g G", "scroll; to the beginning, to the end"),
        ("J K  Ctrl+D Ctrl+U", "turn by turn; half a page"),
        ("[ ]", "to the code block before or after; there y copies, w wraps, h l scroll"),
        ("Ctrl+N", "new conversation"),
    ),
)
MAIN = Section(
    "Everywhere",
    (
        ("F2  n", "the network: coverage map and replicas"),
        ("F3  c", "the chat"),
        ("F4  e", "this machine and the events"),
        ("F5  m", "choose the model"),
        ("F6  w", "what if: hosts go or come"),
        ("F7  h", "host a model on this machine, and see how far it is"),
        ("F8  o", "the conversations: search, open, rename, delete, export"),
        ("F9  p", "the parameters of the next answers"),
        ("Tab  Shift+Tab", "next or previous part of the screen"),
        ("z", "the part that is in use alone on the screen; z or Esc: all again"),
        (":  Ctrl+P", "all commands by name, and every model and node"),
        ("t", "next theme: dark, light, contrast, the terminal's own colours"),
        ("r", "connect to the node again at once"),
        ("s", "start a node here, when the one that was attached to has ended"),
        ("Ctrl+Z", "suspend, outside the prompt; `fg` brings the app back"),
        ("F1  ?", "this help"),
        ("q", "quit: twice, or it asks what becomes of an answer or of a host"),
        ("Ctrl+Q", "quit at once; Ctrl+C twice does the same"),
    ),
)

# --- full screens over it (a section each, named as the screen's CRUMB) ---------------------

WHAT_IF = Section(
    "What if",
    (
        ("↑ ↓  j k", "choose the host that goes"),
        ("Space  Enter", "mark it, so that several go at once; x marks none"),
        ("a", "hosts that come: type their memory, 2 GB or 3 x 1.5GiB"),
        ("+ -", "one more, one less of them; in the line ↑ and ↓"),
        ("/", "show only hosts that match"),
        ("m", "ask about another model"),
        ("y", "copy the answer"),
    ),
)
HOST = Section(
    "Host",
    (
        ("Enter", "in a field: what would fit here, and why; on the button: start"),
        ("Tab", "complete a path; else the next field"),
        ("↓", "from the model to the proposals"),
        ("← →  Space", "another value of a setting"),
        ("s", "start hosting"),
        ("d", "drain: sessions finish, no new ones, then the host ends"),
        ("x", "stop: sessions have 6 seconds; again, while it leaves: at once"),
        ("/", "back to the model"),
        ("Esc", "out of a field, then back"),
    ),
)
CONVERSATIONS = Section(
    "Conversations",
    (
        ("↑ ↓  j k  g G", "up, down, to the first, to the last"),
        ("Enter", "open in the chat"),
        ("/", "search questions, answers and titles; Esc shows all again"),
        ("n", "begin a new conversation"),
        ("e", "rename; an empty name is the first question's words again"),
        ("d  u", "delete; bring back what was deleted last, until the app ends"),
        ("x  X", "export as Markdown; as JSON"),
        ("i", "import a conversation that was exported as JSON"),
        ("< >  1-9  S", "sort by another column; the other way round"),
    ),
)
PARAMETERS = Section(
    "Parameters",
    (
        ("Tab  ↑ ↓", "the next setting, or the one before"),
        ("Enter  Ctrl+S", "apply to the next answers; in the system prompt only Ctrl+S"),
        ("Esc", "leave everything as it was"),
    ),
)
WATERFALL = Section(
    "Waterfall",
    (
        ("↑ ↓  j k", "a token up or down; its figures are told below"),
        ("s", "the slowest tokens first, or as they came"),
        ("< >  1 2", "sort by number or by time; S inverts"),
    ),
)
NODE = Section(
    "Node",
    (
        ("n  p  j  k", "the next or the previous node of the table"),
        ("w", "what if it goes"),
        ("y", "copy its full id"),
        ("↑ ↓", "scroll"),
    ),
)
LIVE = Section(
    "Every screen",
    (
        ("Esc  q", "back"),
        ("F2 … F9", "leave it for what the key opens from the main screen"),
        ("z", "the part that is in use alone on the screen; z or Esc: all again"),
        (":  Ctrl+P", "all commands by name, and every model and node"),
        ("t", "next theme"),
        ("F1  ?", "this help"),
        ("Ctrl+Q", "quit at once; Ctrl+C twice does the same"),
    ),
)

SECTIONS: dict[str, tuple[Section, ...]] = {
    "network": (COVERAGE, REPLICAS, MAIN, CHAT, MACHINE),
    "chat": (CHAT, MAIN, COVERAGE, REPLICAS, MACHINE),
    "machine": (MACHINE, MAIN, COVERAGE, REPLICAS, CHAT),
    **{
        own.heading: (own, LIVE)
        for own in (WHAT_IF, HOST, CONVERSATIONS, PARAMETERS, WATERFALL, NODE)
    },
}
"""By the name of the screen or page; a screen without keys of its own has those of `LIVE`."""

_WITH_MAP = ("network", "chat", "machine", WHAT_IF.heading)

_COLUMN = 21
"""Cells left of what a key does."""
_LEAST_TEXT = 16

_NOTES = (
    "Letters work outside the prompt; Esc leaves it.",
    "The app in a browser: diffuse-tui web",
)

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


def help_lines(name: str, width: int) -> tuple[Line, ...]:
    """The help of the screen or page `name`, in lines of at most `width` cells where that can be.

    What the map's shapes mean is told where the screen has a map.
    """
    lines: list[Line] = []
    for heading, keys in SECTIONS.get(name, (LIVE,)):
        if keys:
            lines.append((Span(heading, "strong"),))
            for key, what in keys:
                lines += _hung(f"  {key}", "accent", what, width)
            lines.append(())
    lines += [(Span(note, "dim"),) for note in _NOTES]
    if name in _WITH_MAP:
        lines += _legend(width)
    return tuple(lines)


def _legend(width: int) -> list[Line]:
    lines: list[Line] = [(), (Span("What the map shows", "strong"),)]
    for glyph, tone, word, meaning in _WORDS:
        lines += _hung(f"  {glyph} {word}", tone, meaning, width)
    for glyph, tone, meaning in _SHAPES:
        lines += _hung(f"  {glyph}", tone, meaning, width)
    return lines


def _hung(head: str, tone: Tone, text: str, width: int) -> list[Line]:
    """`text` beside `head`; what of it needs more lines stays in its column."""
    pieces = textwrap.wrap(text, max(_LEAST_TEXT, width - _COLUMN))
    heads = (head.ljust(_COLUMN), *[" " * _COLUMN] * (len(pieces) - 1))
    return [(Span(one, tone), Span(piece)) for one, piece in zip(heads, pieces, strict=True)]
