"""Special tokens' texts in what people write: kept from becoming those tokens.

`<|im_end|>` in a pasted document would end the user's turn and let the document speak as the
system or the assistant. So each such text is parted by a mark before the template is filled, and
the chat is encoded in the parts between the marks: no part holds a special token's text but those
that the template wrote. `transformers` does not do this; chats without such texts give equal ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Unicode's noncharacters, which no text has a reason to hold."""


class QuotedWords:
    """Parts the texts of special tokens; a text of one character cannot be parted and stays."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` are the special tokens' texts."""
        self._words = sorted({word for word in words if len(word) > 1})

    def mark(self, contents: Sequence[str]) -> tuple[list[str], str]:
        """The contents with a mark in every special text, and the mark ("" when none has one).

        Raises:
            UsageError: the contents hold all marks there are.
        """
        found = [[word for word in self._words if word in content] for content in contents]
        if not any(found):
            return list(contents), ""
        mark = self._unused(contents)
        return [
            _parted(content, words, mark) for content, words in zip(contents, found, strict=True)
        ], mark

    def _unused(self, contents: Sequence[str]) -> str:
        for mark in _MARKS:
            if not any(mark in text for text in (*contents, *self._words)):
                return mark
        raise UsageError("the chat holds every Unicode noncharacter from U+FDD0; leave them out")


def _parted(content: str, words: Iterable[str], mark: str) -> str:
    for word in words:
        while word in content:  # Again where a word overlaps itself.
            content = content.replace(word, word[0] + mark + word[1:])
    return content
