"""What travels with a question: the system prompt, and as many of the turns before as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.view import ChatMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_tui.presenter.dialogue import KeptTurn

MAX_MESSAGES = 255
MAX_CHARS = 200_000
"""Of all messages together; older turns stay on the screen but are not sent."""
MAX_SYSTEM = MAX_CHARS // 2
"""Of a system prompt."""


class Context(NamedTuple):
    """The messages to send, and how many of the oldest turns did not fit."""

    messages: tuple[ChatMessage, ...]
    left_out: int


def context(
    turns: Sequence[KeptTurn], question: str, system: str = "", room: int = MAX_CHARS
) -> Context:
    """System prompt, previous turns and the new question; what is too much goes, oldest first.

    Turns that failed or have no answer are not part of it.

    Args:
        turns: The turns before, in order.
        question: What is asked; it is sent whatever its length.
        system: The system prompt, "" for none.
        room: Characters of all that is sent.
    """
    kept: list[KeptTurn] = []
    room -= len(question) + len(system)
    answered = [turn for turn in turns if turn.answer and turn.state != "failed"]
    for turn in reversed(answered):
        room -= len(turn.question) + len(turn.answer)
        if room < 0 or 2 * len(kept) + 3 + bool(system) > MAX_MESSAGES:
            break
        kept.append(turn)
    messages: list[ChatMessage] = [ChatMessage("system", system)] if system else []
    for turn in reversed(kept):
        messages.append(ChatMessage("user", turn.question))
        messages.append(ChatMessage("assistant", turn.answer))
    messages.append(ChatMessage("user", question))
    return Context(tuple(messages), len(answered) - len(kept))
