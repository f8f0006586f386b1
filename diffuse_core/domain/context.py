"""What travels with a question: the system prompt, and as many of the turns before as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from diffuse_core.domain.view import ChatMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_MESSAGES = 255
MAX_CHARS = 200_000
"""Of all messages together; older turns stay on the screen but are not sent."""
MAX_SYSTEM = MAX_CHARS // 2
"""Of a system prompt."""

TOKEN_CHARS = 3.0
"""Characters of a token until a prompt has shown how many there are: rather too few."""
MEASURED_CHARS = 1_000
"""A prompt shorter than this is mostly the chat template."""


class Turn(Protocol):
    """A question and what was answered; `state` "failed" where nothing came of it."""

    @property
    def question(self) -> str:
        """What was asked."""
        ...

    @property
    def answer(self) -> str:
        """What was answered, "" for nothing."""
        ...

    @property
    def state(self) -> str:
        """How it ended."""
        ...


class Context(NamedTuple):
    """The messages to send, and how many of the oldest turns did not fit."""

    messages: tuple[ChatMessage, ...]
    left_out: int


def context(
    turns: Sequence[Turn], question: str, system: str = "", room: int = MAX_CHARS
) -> Context:
    """System prompt, previous turns and the new question; what is too much goes, oldest first.

    Turns that failed or have no answer are not part of it.

    Args:
        turns: The turns before, in order.
        question: What is asked; it is sent whatever its length.
        system: The system prompt, "" for none.
        room: Characters of all that is sent.
    """
    kept: list[Turn] = []
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


def token_chars(messages: Sequence[ChatMessage], tokens: int) -> float | None:
    """Characters of a token, rather too few, as a prompt of so many tokens shows; else None."""
    chars = sum(len(message.content) for message in messages)
    if chars < MEASURED_CHARS or tokens < 1:
        return None
    return min(10.0, max(0.1, 0.9 * chars / tokens))


def room(positions: int, max_tokens: int, chars: float = TOKEN_CHARS) -> int:
    """Characters for all that is sent, so that there is room for the answer.

    It never takes more than half of the positions from what was said before.

    Args:
        positions: Tokens that the model's context holds.
        max_tokens: The longest answer.
        chars: Characters of a token.
    """
    return min(MAX_CHARS, int(max(positions // 2, positions - max_tokens) * chars))
