"""Long texts in a prompt: a short label stands for each, and is read as the text when sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_tui.presenter.figures import size_text

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

CHIP_LINES = 20
CHIP_CHARS = 2_000
"""A pasted text with more lines or characters than this becomes a chip."""

_LABEL = re.compile(r"\[[^\[\]\n]{1,160}\]")
_FENCE = re.compile(r"^\s{0,3}(`{3,})", re.MULTILINE)


def typable(text: str) -> str:
    """`text` as it may stand in a prompt: control characters made visible, tabs kept."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\t".join(clean(part) for part in lines.split("\t"))


def worth_a_chip(text: str) -> bool:
    """Whether `text` would fill the prompt."""
    return len(text) > CHIP_CHARS or text.count("\n") > CHIP_LINES


def pasted_label(text: str, taken: Container[str] = ()) -> str:
    """`[pasted 312 lines, 14 KiB]`, numbered when that is taken."""
    lines = text.removesuffix("\n").count("\n") + 1
    what = f"{lines} lines, " if lines > 1 else ""
    return _free(f"pasted {what}{_size(text)}", taken)


def attached_label(name: str, text: str, taken: Container[str] = ()) -> str:
    """`[file notes.txt, 14 KiB]`, numbered when that is taken."""
    short = re.sub(r"[\[\]]", "_", clean_line(name, 60))
    return _free(f"file {short}, {_size(text)}", taken)


def attached_text(name: str, text: str) -> str:
    """What a model is given of a file: its name, and its text as a block of code."""
    longest = max((len(mark) for mark in _FENCE.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"\n{clean_line(name, 200)}:\n{fence}\n{text.rstrip()}\n{fence}\n"


def chips_in(text: str, chips: Container[str]) -> list[tuple[int, int]]:
    """Where in a text labels of `chips` stand, as half-open ranges of characters."""
    return [found.span() for found in _LABEL.finditer(text) if found[0] in chips]


def resolved(text: str, chips: Mapping[str, str]) -> str:
    """`text` with every label read as what it stands for."""
    if not chips:
        return text
    return _LABEL.sub(lambda found: chips.get(found[0], found[0]), text)


def whole(start: int, end: int, spans: list[tuple[int, int]]) -> tuple[int, int]:
    """The range of an edit in one line, so that a chip goes whole or stays whole.

    What would be put into a chip is put behind it.
    """
    for left, right in spans:
        if start == end:
            if left < start < right:
                return right, right
        elif start < right and end > left:
            start, end = min(start, left), max(end, right)
    return start, end


def _size(text: str) -> str:
    return size_text(len(text.encode("utf-8", "replace")))


def _free(words: str, taken: Container[str]) -> str:
    label, number = f"[{words}]", 2
    while label in taken:
        label, number = f"[{words} #{number}]", number + 1
    return label
