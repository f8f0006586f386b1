"""The terminal's own title: what to write to it, and how it gets back the one it had."""

from __future__ import annotations

from diffuse_core.domain.plain_text import clean_line

KEEP_TITLE = "\x1b[22;2t"
"""Have the terminal keep the title it has; one that cannot ignores it."""

GIVE_TITLE_BACK = "\x1b[23;2t"

MAX_TITLE = 80


def name_terminal(title: str) -> str:
    """The sequence that shows `title` (control characters taken out) as window and tab title."""
    return f"\x1b]2;{clean_line(title, MAX_TITLE)}\x07"
