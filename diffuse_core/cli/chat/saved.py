"""A chat as a file: JSON that a chat and the app read back, or Markdown for people."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from diffuse_core.cli.chat.conversation import MAX_TURNS, State, Turn
from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_core.errors import UsageError

FORMAT = "diffuse.conversation"
VERSION = 1
MAX_BYTES = 64 * 2**20
"""Of a file that is read back."""
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})", re.MULTILINE)

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=300)]
Time = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    question: Text
    answer: Text = ""
    state: Literal["streaming", "done", "stopped", "failed", "cut"] = "done"
    model: Name = ""
    at: Time = 0.0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds; fields that are not known are passed over."""

    format: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    model: Name = ""
    system: Text = ""
    parameters: dict[str, Any] = {}
    created: Time = 0.0
    changed: Time = 0.0
    turns: Annotated[tuple[_Turn, ...], msgspec.Meta(max_length=MAX_TURNS)] = ()

    def as_turns(self) -> list[Turn]:
        """The turns; an answer that was left open, or cut by a crash, counts as stopped."""
        known: dict[str, State] = {"done": "done", "failed": "failed"}
        return [
            Turn(each.question, each.answer, known.get(each.state, "stopped"), each.model, each.at)
            for each in self.turns
        ]


def to_json(
    turns: list[Turn], model: str, system: str, parameters: dict[str, Any], now: float
) -> str:
    """A conversation in the app's own form (`/export json` there)."""
    file = Saved(
        format=FORMAT,
        version=VERSION,
        model=model,
        system=system,
        parameters=parameters,
        created=turns[0].at if turns else now,
        changed=now,
        turns=tuple(_Turn(**turn._asdict()) for turn in turns),
    )
    text = msgspec.json.format(msgspec.json.encode(file), indent=2).decode()
    # What could steer a terminal is in it as an escape, which reads back as the same.
    odd = {c for c in text if c != "\n" and clean(c) != c}
    for each in odd:
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text + "\n"


def from_json(data: bytes) -> Saved:
    """What `to_json` wrote, or the app.

    Raises:
        UsageError: it is no conversation, of a newer version, or beyond all bounds.
    """
    try:
        file = msgspec.json.decode(data, type=Saved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no conversation of Diffuse ({error}); see /save") from error
    if file.format != FORMAT:
        raise UsageError("this is no conversation of Diffuse; /save one as JSON to see the form")
    if file.version > VERSION:
        raise UsageError("the file is of a newer version of Diffuse; update this one")
    return file


def to_markdown(turns: list[Turn], model: str, system: str) -> str:
    """The conversation as CommonMark: questions are quoted, answers stand as they are."""
    parts = ["# Chat", f"- Model: `{clean_line(model).replace('`', '')}`"]
    if system:
        parts += ["## System prompt", _quoted(system)]
    for number, turn in enumerate(turns, 1):
        parts += [f"## Question {number}", _quoted(turn.question)]
        parts += [f"## Answer {number}", _closed(clean(turn.answer)).strip() or "*(nothing)*"]
        if turn.state != "done":
            parts.append(f"*{turn.state}*")
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in clean(text).split("\n"))


def _closed(text: str) -> str:
    """`text` with the block of code closed that it leaves open."""
    fence = ""
    for mark in _FENCE.findall(text):
        if not fence:
            fence = mark
        elif mark.startswith(fence):
            fence = ""
    return f"{text}\n{fence}" if fence else text
