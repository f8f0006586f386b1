"""What is typed beside questions: `/name argument`; `//` begins a question with a slash."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_CHARS = 40
"""As much of what was typed for a name is looked at, and told."""


class Command(NamedTuple):
    """One command: its name, what may follow ("" for nothing), and what it does."""

    name: str
    argument: str
    what: str


class Said(NamedTuple):
    """The name of a command, in small letters, and the text behind it."""

    name: str
    rest: str


def read(text: str) -> Said | str:
    """What was typed: a command, whether it exists or not, or a question."""
    if not text.startswith("/"):
        return text
    return text[1:] if text.startswith("//") else parts(text)


def parts(text: str) -> Said:
    """Name and rest of a text that begins with a slash."""
    head, _, rest = text[1:].partition(" ")
    name, line_break, more = head.partition("\n")
    return Said(name.lower(), (f"{more} {rest}" if line_break else rest).strip())


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was meant, perhaps."""
    # Only now: it takes a moment, and whoever types right needs none of it.
    from difflib import get_close_matches

    near = get_close_matches(name[:NAME_CHARS], list(known), n=1, cutoff=0.5)
    return near[0] if near else None
