"""A chat as a file: JSON that a chat and the app read back, or Markdown for people."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from diffuse_core.cli.chat.conversation import State, Turn
from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_core.domain.saved_chat import (
    FORMAT,
    VERSION,
    SavedChat,
    SavedTurn,
    decode_chat,
    encode_chat,
)

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})", re.MULTILINE)


class Saved(SavedChat, frozen=True, kw_only=True):
    """A chat in the app's own form; of what that holds beside it nothing is kept."""

    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

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
    return encode_chat(
        Saved(
            format=FORMAT,
            version=VERSION,
            model=model,
            system=system,
            parameters=parameters,
            created=turns[0].at if turns else now,
            changed=now,
            turns=tuple(SavedTurn(**turn._asdict()) for turn in turns),
        )
    )


def from_json(data: bytes) -> Saved:
    """What `to_json` wrote, or the app.

    Raises:
        UsageError: it is no conversation, of a newer version, or beyond all bounds.
    """
    return decode_chat(data, Saved)


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
