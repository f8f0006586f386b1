"""Cutting a streaming answer where its Markdown is settled.

Only text after the last settled place can still change how it looks. What is before is shaped
once and for all; code is handed out line by line, for nothing in it can change.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

MAX_PENDING = 16_000
"""Characters after which text is settled wherever it is."""

_FENCE = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"(?:[-*+]|(\d{1,9})[.)])\s+\S")
_HEADING = re.compile(r"#{1,6}\s")
_MAX_INDENT = 12
"""Of a fence within a list; outside of one, three spaces are the most."""


class Piece(NamedTuple):
    """Settled text; or a code block's language, one line of it, its end."""

    kind: Literal["text", "code", "line", "end"]
    text: str = ""


class BlockCutter:
    """Hands out the settled pieces of a growing text, each once and in order."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._waiting = 0  # Characters of `_lines`.
        self._fence = ""  # The marks that opened the code block we are in.
        self._indent = 0  # Of that fence.
        self._dedent = 0  # What text after a fence within a list item is relieved of.
        self._blank = False
        self._listing = False

    @property
    def tail(self) -> str:
        """What is not settled yet; within code the line that grows."""
        return "\n".join([*self._lines, self._partial])

    def push(self, text: str) -> list[Piece]:
        """Add text; return what became settled. Lines are looked at once."""
        out: list[Piece] = []
        self._partial += text
        if "\n" in text:
            *lines, self._partial = self._partial.split("\n")
            for line in lines:
                self._line(line, out)
        # A line after an empty one begins a new block, whatever follows on it.
        if self._blank and not self._fence and self._partial[:1].strip():
            self._settle(out)
        if self._waiting + len(self._partial) > MAX_PENDING:
            line, self._partial = self._partial, ""
            self._line(line, out)
            self._settle(out)
        return out

    def flush(self) -> list[Piece]:
        """The rest, at the end of the answer; an open code block ends there."""
        out: list[Piece] = []
        fence = None if self._fence else _FENCE.match(self._partial)
        if self._partial and not (fence and self._opens(fence)):
            # But a fence with nothing after it, which would open an empty block.
            self._line(self._partial, out)
        self._settle(out)
        if self._fence:
            out.append(Piece("end"))
        self._partial = self._fence = ""
        return out

    def _line(self, line: str, out: list[Piece]) -> None:
        fence = _FENCE.match(line)
        if self._fence:
            if fence and fence[2].startswith(self._fence) and not fence[3].strip():
                self._fence, self._blank = "", True
                out.append(Piece("end"))
            else:
                out.append(Piece("line", _relieved(line, self._indent)))
            return
        if fence and self._opens(fence):
            self._settle(out)
            self._fence, self._indent = fence[2], len(fence[1])
            self._dedent = self._indent
            out.append(Piece("code", fence[3].strip()))
            return
        self._text_line(self._dedented(line), out)

    def _opens(self, fence: re.Match[str]) -> bool:
        most = _MAX_INDENT if self._listing else 3
        return len(fence[1]) <= most and "`" not in fence[3]

    def _text_line(self, line: str, out: list[Piece]) -> None:
        item = _ITEM.match(line)
        heading = _HEADING.match(line)
        fresh = self._blank and bool(line[:1].strip())
        if fresh or heading or (item and self._listing):
            self._settle(out)
            # What a fence in an item is followed by may be of that item still.
            self._listing = self._listing and (not fresh or bool(item or self._dedent))
        if item and (fresh or self._listing or item[1] in (None, "1") or not self._lines):
            self._listing = True
        elif heading:
            self._listing = False
        self._lines.append(line)
        self._waiting += len(line) + 1
        self._blank = not line.strip()
        if heading:
            self._settle(out)

    def _dedented(self, line: str) -> str:
        if self._dedent and line.strip() and not line.startswith(" " * self._dedent):
            self._dedent = 0
        return _relieved(line, self._dedent)

    def _settle(self, out: list[Piece]) -> None:
        if self._lines:
            out.append(Piece("text", "\n".join(self._lines) + "\n"))
            self._lines.clear()
            self._waiting = 0


def _relieved(line: str, indent: int) -> str:
    """`line` without so many of the spaces that it begins with."""
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]


def code_blocks(text: str) -> tuple[str, ...]:
    """What stands in the code blocks of a whole answer, in order."""
    cutter = BlockCutter()
    found: list[list[str]] = []
    for piece in [*cutter.push(text), *cutter.flush()]:
        if piece.kind == "code":
            found.append([])
        elif piece.kind == "line":
            found[-1].append(piece.text)
    return tuple("\n".join(lines) for lines in found)
