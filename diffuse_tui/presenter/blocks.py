"""Cutting a streaming answer where its Markdown is settled.

Only text after the last settled place can still change how it renders. What is before is mounted
as real Markdown once, the rest is shown as it comes.
"""

from __future__ import annotations

import re

MAX_MARKDOWN_CHARS = 16_000
MAX_MARKDOWN_LINES = 240

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_CONTINUES = re.compile(r"\s|[-*+>|]\s?|\d{1,9}[.)]\s")


class BlockCutter:
    """Hands out settled blocks of a growing text."""

    def __init__(self) -> None:
        self._pending = ""
        self._scanned = 0  # Start of the first line not looked at yet.
        self._fence = ""  # The marks that opened the code block we are in.
        self._blank = False
        self._cut = 0

    @property
    def tail(self) -> str:
        """What is not settled yet."""
        return self._pending

    def push(self, text: str) -> str:
        """Add text; return what became settled, maybe empty. Lines are looked at once."""
        self._pending += text
        while (end := self._pending.find("\n", self._scanned)) >= 0:
            self._line(self._pending[self._scanned : end], end + 1)
            self._scanned = end + 1
        # A letter after an empty line begins a new paragraph, whatever follows on its line.
        if self._blank and not self._fence and self._pending[self._scanned :][:1].isalpha():
            self._cut = self._scanned
        settled, self._pending = self._pending[: self._cut], self._pending[self._cut :]
        self._scanned -= self._cut
        self._cut = 0
        return settled

    def flush(self) -> str:
        """The rest, at the end of the answer."""
        rest, self._pending = self._pending, ""
        self._scanned, self._fence, self._blank = 0, "", False
        return rest

    def _line(self, line: str, after: int) -> None:
        fence = _FENCE.match(line)
        if self._fence:
            closes = fence and fence[1].startswith(self._fence) and not fence[2].strip()
            if closes:
                self._fence = ""
                self._cut = after
            return
        if self._blank and line.strip() and not _CONTINUES.match(line):
            self._cut = self._scanned
        if fence:
            self._fence = fence[1]
        self._blank = not line.strip()


def too_much_for_markdown(block: str) -> bool:
    """Whether mounting `block` as Markdown widgets would stall the screen."""
    return len(block) > MAX_MARKDOWN_CHARS or block.count("\n") > MAX_MARKDOWN_LINES
