"""Special tokens' texts in what people write: kept from becoming those tokens.

`<|im_end|>` in a pasted document would end the user's turn and let the document speak as the
system or the assistant. So each such text is parted by a mark before the template is filled, and
the chat is encoded in the parts between the marks: no part holds a special token's text but those
that the template wrote. `transformers` does not do this; chats without such texts give equal ids.
The same goes for all that tools bring: descriptions, arguments, results.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Value = TypeVar("Value")
_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Unicode's noncharacters, which no text has a reason to hold."""
_FIELDS = frozenset(
    [
        "role",
        "system",
        "user",
        "assistant",
        "tool",
        "content",
        "tool_calls",
        "tool_call_id",
        "id",
        "type",
        "function",
        "name",
        "arguments",
        "description",
        "parameters",
    ]
)
"""What templates look for; a whole text that is one of these stays, whatever tokens there are."""


class QuotedWords:
    """Parts the texts of special tokens; a text of one character cannot be parted and stays."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` are the special tokens' texts."""
        self._words = sorted({word for word in words if len(word) > 1})

    def mark(self, value: Value) -> tuple[Value, str]:
        """A JSON value with a mark in every special text, and the mark ("" when it has none).

        Raises:
            UsageError: its texts hold all marks there are.
        """
        texts = list(strings(value))
        # One look at everything, because there may be many words and many texts.
        everything = "\0".join(texts)
        words = [word for word in self._words if word in everything]
        if not words:
            return value, ""
        mark = self._unused((everything, *self._words))
        return _changed(value, lambda text: _parted(text, words, mark)), mark

    def _unused(self, texts: Sequence[str]) -> str:
        for mark in _MARKS:
            if not any(mark in text or _escape(mark) in text for text in texts):
                return mark
        raise UsageError("the chat holds every Unicode noncharacter from U+FDD0; leave them out")


def strings(value: object) -> Iterator[str]:
    """Every text in a JSON value, names of fields among them."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from each
            todo += each.values()
        elif isinstance(each, list):
            todo += each


def split_at(text: str, mark: str) -> list[str]:
    """The parts of a text between marks, also where a template wrote a mark as an escape."""
    if not mark:
        return [text]
    return re.split(rf"{mark}|\\+{_escape(mark)}", text)


def _escape(mark: str) -> str:
    """What JSON and Python write for it, after a backslash."""
    return f"u{ord(mark):04x}"


def _changed(value: Value, change: Callable[[str], str]) -> Value:
    """A copy of a JSON value with other texts."""
    made: object = value
    if isinstance(value, str):
        made = value if value in _FIELDS else change(value)
    elif isinstance(value, dict):
        made = {_changed(key, change): _changed(each, change) for key, each in value.items()}
    elif isinstance(value, list):
        made = [_changed(each, change) for each in value]
    return made  # type: ignore[return-value]


def _parted(content: str, words: Iterable[str], mark: str) -> str:
    for word in words:
        while word in content:  # Again where a word overlaps itself.
            content = content.replace(word, word[0] + mark + word[1:])
    return content
