"""Text with emphasis, wrapped into rows of cells: what an answer is drawn from."""

from __future__ import annotations

import re
from enum import IntFlag
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIN_ROOM = 10
"""Cells that an indent leaves to the text, where there are so many."""

_WORD = re.compile(r"\s*\S+")


class Look(IntFlag):
    """What a piece of an answer is; several may hold at once."""

    PLAIN = 0
    STRONG = 1
    EMPHASIS = 2
    CODE = 4
    STRIKE = 8
    LINK = 16
    HEADING = 32
    UNDERLINE = 64
    DIM = 128
    KEYWORD = 256
    STRING = 512
    COMMENT = 1024
    NUMBER = 2048
    NAME = 4096


class Run(NamedTuple):
    """Text of one look."""

    text: str
    look: Look = Look.PLAIN


class Row(NamedTuple):
    """One row on the screen.

    The first `indent` characters are no text of their own where the row goes on with the one
    before; `glue` is what joins it to that one when text is copied.
    """

    runs: tuple[Run, ...]
    glue: str = "\n"
    indent: int = 0

    @property
    def text(self) -> str:
        """All of the row."""
        return "".join(run.text for run in self.runs)


def cells(text: str) -> int:
    """Columns that `text` takes on the screen."""
    return len(text) if text.isascii() else cell_len(text)


def wrap(runs: Sequence[Run], width: int, first: str = "", rest: str = "") -> list[Row]:
    """Rows of at most `width` cells, the first behind `first`, all others behind `rest`."""
    most = max(0, width - MIN_ROOM)
    # The end of an indent has the mark of the item.
    first, rest = first[max(0, len(first) - most) :], rest[max(0, len(rest) - most) :]
    room = max(1, width - max(cells(first), cells(rest)))
    rows: list[Row] = []
    taken = _Taken(runs)
    for start, end, glue in _places("".join(run.text for run in runs), room):
        prefix = rest if rows else first
        held = taken.between(start, end)
        rows.append(Row((Run(prefix, Look.DIM), *held) if prefix else held, glue, len(prefix)))
    return rows


class _Taken:
    """Hands out parts of runs, in order; so a long text is gone through once."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._index = 0
        self._place = 0

    def between(self, start: int, end: int) -> tuple[Run, ...]:
        found = []
        while self._index < len(self._runs):
            run = self._runs[self._index]
            after = self._place + len(run.text)
            if after > start and self._place < end:
                part = run.text[max(0, start - self._place) : end - self._place]
                found.append(Run(part, run.look))
            if after > end:
                break
            self._place, self._index = after, self._index + 1
        return tuple(found)


def _places(text: str, room: int) -> Iterator[tuple[int, int, str]]:
    """Start and end of each row in `text`, and what joins it to the row before."""
    begin = 0
    for line in text.split("\n"):
        for start, end in _breaks(line, room):
            spaced = " " if line[start - 1 : start].isspace() else ""
            yield begin + start, begin + end, spaced if start else "\n"
        begin += len(line) + 1


def _breaks(line: str, room: int) -> Iterator[tuple[int, int]]:
    if len(line) <= room and cells(line) <= room:
        yield 0, len(line)
        return
    start = end = used = 0
    for word in _WORD.finditer(line):
        size = cells(word[0])
        if used + size <= room:
            used, end = used + size, word.end()
            continue
        if end > start:
            yield start, end
        start = word.end() - len(word[0].lstrip()) if end else word.start()
        *whole, last = _chopped(line[start : word.end()], room)
        for part in whole:
            if part:
                yield start, start + len(part)
                start += len(part)
        used, end = cells(last), word.end()
    if end > start or not end:
        yield start, end


def _chopped(word: str, room: int) -> list[str]:
    """A word too long for a row, in parts; at least one."""
    parts: list[str] = []
    for part in chop_cells(word, room):
        if len(part) == 1 or cells(part) <= room:
            parts.append(part)
            continue
        # Joiners without anything to join are counted otherwise there: one by one, then.
        held = ""
        for character in part:
            if held and cells(held + character) > room:
                parts.append(held)
                held = ""
            held += character
        parts.append(held)
    return parts or [""]
