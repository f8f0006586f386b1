"""Logprobs in the two shapes of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.openai_server.telling import Entry
    from diffuse_core.ports import Answers

LEAST = -9999.0
"""What the API tells for a token that is out of reach; JSON has no infinity."""
MAX_WORDS = 65_536
"""Tokens of one request whose texts are kept."""


class Words:
    """Texts and bytes of a model's tokens, fetched once for each."""

    def __init__(self, answers: Answers, model: str) -> None:
        self._answers = answers
        self._model = model
        self._texts: dict[int, str] = {}
        self._bytes: dict[int, bytes | None] = {}

    async def learn(self, entries: Sequence[Entry]) -> None:
        """Get to know all tokens that these entries name."""
        named = {token for entry in entries for token, _ in entry.logprobs.top}
        new = named.union(entry.token for entry in entries).difference(self._texts)
        if not new:
            return
        if len(self._texts) > MAX_WORDS:
            self._texts.clear()
            self._bytes.clear()
            await self.learn(entries)
            return
        try:
            self._texts |= await self._answers.token_texts(self._model, new)
            self._bytes |= await self._answers.token_bytes(self._model, new)
        except DiffuseError:
            # A model that has just gone leaves its tokens without a text, but not the answer.
            return

    def text(self, token: int) -> str:
        """What a token shows; its id where that is not known."""
        return self._texts.get(token, f"token_id:{token}")

    def bytes(self, token: int) -> list[int] | None:
        """The bytes that it adds to a text."""
        known = self._bytes.get(token)
        return None if known is None else list(known)


def chat_logprobs(entries: Sequence[Entry], words: Words) -> dict[str, Any]:
    """The shape of chat completions: a list of tokens, each with its likeliest rivals."""

    def one(token: int, value: float) -> dict[str, Any]:
        return {
            "token": words.text(token),
            "logprob": _logprob(value),
            "bytes": words.bytes(token),
        }

    content = [
        {
            **one(entry.token, entry.logprobs.drawn),
            "top_logprobs": [one(*likely) for likely in entry.logprobs.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def text_logprobs(entries: Sequence[Entry], words: Words) -> dict[str, Any]:
    """The shape of text completions: lists side by side.

    The drawn token is always among `top_logprobs`. `text_offset` is where in the choice's text
    that of a token begins; tokens that make up one character together have the same.
    """
    return {
        "tokens": [words.text(entry.token) for entry in entries],
        "token_logprobs": [_logprob(entry.logprobs.drawn) for entry in entries],
        "top_logprobs": [_rivals(entry, words) for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }


def _rivals(entry: Entry, words: Words) -> dict[str, float]:
    rivals: dict[str, float] = {}
    for token, value in (*entry.logprobs.top, (entry.token, entry.logprobs.drawn)):
        # Several tokens may show the same: the likeliest of them comes first.
        rivals.setdefault(words.text(token), _logprob(value))
    return rivals


def _logprob(value: float) -> float:
    """As JSON can have it, whatever a Host sent: NaN is as good as out of reach."""
    return min(max(LEAST, value), 0.0)
