"""A conversation as Markdown, to be read by people."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.plain_text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn

PARSED_CHARS = 100_000
"""Answers up to this long are looked through for what would swallow what follows them."""

_ROLES = ("Question", "Answer")
_BREAKER = "end"


def to_markdown(dialogue: Dialogue) -> str:
    """The conversation as CommonMark: title, settings, then a heading for each part of a turn.

    Questions are quoted. Answers stand as they are, for they are Markdown; what one leaves open
    (a fence, a comment) is closed, so that no part swallows the next one's heading.
    """
    parts = [f"# {_heading(dialogue.title)}", "\n".join(_facts(dialogue))]
    if dialogue.system:
        parts += ["## System prompt", _quoted(dialogue.system)]
    for turn in dialogue.turns:
        number = turn.number + 1
        parts += [f"## {_ROLES[0]} {number}", _quoted(turn.question)]
        parts += [f"## {_ROLES[1]} {number}", _contained(_shown(turn.answer)) or "*(nothing)*"]
        parts += [f"*{_heading(line)}*" for line in _notes(turn, dialogue.model)]
    return "\n\n".join(parts) + "\n"


def _facts(dialogue: Dialogue) -> Iterator[str]:
    if dialogue.model:
        yield f"- Model: {_code(dialogue.model)}"
    settings = msgspec.to_builtins(dialogue.params)
    yield f"- Parameters: {_code(', '.join(f'{k}={_plain(v)}' for k, v in settings.items()))}"
    yield f"- Begun: {_time(dialogue.created_at)}"
    yield f"- Last changed: {_time(dialogue.changed_at)}"


def _plain(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _notes(turn: KeptTurn, usual: str) -> Iterator[str]:
    if turn.state != "done":
        words = {"cut": "cut off when the app ended", "streaming": "still being answered"}
        yield words.get(turn.state, turn.state)
    if turn.model and turn.model != usual:
        yield f"answered by {turn.model}"
    if turn.note:
        yield " · ".join(turn.note.split("\n"))


def _time(at: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "unknown"


def _shown(text: str) -> str:
    """Safe to look at in a terminal; tabs stay, for code needs them."""
    return "\t".join(clean(part) for part in text.split("\t"))


def _heading(text: str) -> str:
    """One line in which nothing is markup."""
    line = " ".join(clean_line(text, 2000).split()) or "untitled"
    return re.sub(r"([\\`*_{}\[\]<>#|~!&])", r"\\\1", line)


def _code(text: str) -> str:
    line = " ".join(clean_line(text, 2000).split())
    ticks = "`" * (_longest(line, "`") + 1)
    return f"{ticks} {line} {ticks}"


def _longest(text: str, letter: str) -> int:
    return max((len(run) for run in re.findall(f"{re.escape(letter)}+", text)), default=0)


def _quoted(text: str) -> str:
    """A quotation in a fence of its own: the text as it was typed, whatever is in it."""
    fence = "`" * max(3, _longest(text, "`") + 1)
    lines = [f"{fence}text", *_shown(text).split("\n"), fence]
    return "\n".join(f"> {line}" for line in lines)


def _contained(answer: str) -> str:
    """The answer, with what it leaves open closed; in a fence where that cannot be told."""
    answer = answer.strip("\n")
    if len(answer) <= PARSED_CHARS:
        fences = re.findall(r"^[ >]*(`{3,}|~{3,})", answer, re.MULTILINE)
        for closing in ("", *dict.fromkeys(fences), "-->", "</pre>", "?>", "]]>", ">"):
            whole = f"{answer}\n{closing}" if closing else answer
            if _closed(whole):
                return whole
    fence = "`" * max(3, _longest(answer, "`") + 1)
    return f"{fence}\n{answer}\n{fence}"


def _closed(markdown: str) -> bool:
    """Whether a heading after this text is read as one."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(f"{markdown}\n\n## {_BREAKER}")
    last = tokens[-3:]
    return (
        len(last) == 3
        and last[0].type == "heading_open"
        and last[0].level == 0
        and last[1].content == _BREAKER
    )
