"""The conversation of a chat: what was said, and what of it travels with a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from diffuse_core.domain.context import TOKEN_CHARS, Context, context, room, token_chars
from diffuse_core.domain.saved_chat import MAX_TURNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import ChatMessage

State = Literal["done", "stopped", "failed"]


class Turn(NamedTuple):
    """A question and its answer; `at` is Unix time in seconds, `model` as it was asked for."""

    question: str
    answer: str
    state: State = "done"
    model: str = ""
    at: float = 0.0


class Conversation:
    """What was said so far, oldest first."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.turns: list[Turn] = []
        self._chars: float | None = None

    def add(self, turn: Turn) -> None:
        """Keep a turn; of very many the oldest goes."""
        self.turns.append(turn)
        del self.turns[:-MAX_TURNS]

    def undo(self) -> Turn | None:
        """Take back the last turn."""
        return self.turns.pop() if self.turns else None

    def reset(self) -> None:
        """Forget all that was said; the system prompt stays."""
        self.turns.clear()

    def asking(self, question: str, positions: int | None, max_tokens: int) -> Context:
        """What to send for a question, of what the model has room for.

        Args:
            question: What is asked; it is sent whatever its length.
            positions: Tokens of the model's context; None where that is not known.
            max_tokens: The longest answer.
        """
        if positions is None:
            return context(self.turns, question, self.system)
        space = room(positions, max_tokens, self._chars or TOKEN_CHARS)
        return context(self.turns, question, self.system, space)

    def shorter(self, question: str, sent: Context) -> Context | None:
        """Fewer of the turns than were sent; None where there are none to leave out."""
        left = len(sent.messages) - 1 - bool(self.system)
        if left < 2:
            return None
        # Half of them at a time: a question must not be tried for minutes.
        kept = self.turns_sent(sent)
        kept = kept[(len(kept) + 1) // 2 :]
        fewer = context(kept, question, self.system)
        return Context(fewer.messages, sent.left_out + left // 2 - len(kept))

    def turns_sent(self, sent: Context) -> list[Turn]:
        """The turns that a context has."""
        answered = [turn for turn in self.turns if turn.answer and turn.state != "failed"]
        count = (len(sent.messages) - 1 - bool(self.system)) // 2
        return answered[len(answered) - count :]

    def measured(self, messages: Sequence[ChatMessage], tokens: int) -> None:
        """Learn from a prompt how long tokens are."""
        self._chars = token_chars(messages, tokens) or self._chars
