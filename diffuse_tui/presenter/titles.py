"""What a conversation is called until somebody names it."""

from __future__ import annotations

from diffuse_core.domain.plain_text import clean_line, shorten

TITLE_CHARS = 60
UNTITLED = "untitled"

_LOOKED_AT = 2000
"""Characters of a question in which its first words are looked for."""


def first_words(question: str) -> str:
    """The first words of a question, on one line, cut between words where that is possible.

    Args:
        question: The first question of the conversation, attached text included.

    Returns:
        At most `TITLE_CHARS` characters, never none.
    """
    words = clean_line(question[:_LOOKED_AT], _LOOKED_AT).split()
    line = " ".join(words)
    if len(line) <= TITLE_CHARS:
        return line or UNTITLED
    cut = line[:TITLE_CHARS].rpartition(" ")[0]
    return f"{cut}…" if len(cut) > TITLE_CHARS // 2 else shorten(line, TITLE_CHARS)
