"""Answers as the API's objects: whole ones, and chunks of streams."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Protocol

from diffuse_core.adapters.openai_server.logprobs import chat_logprobs, text_logprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.openai_server.logprobs import Words
    from diffuse_core.adapters.openai_server.telling import Call, Choice, Piece

_ID_BYTES = 16


class Shape(Protocol):
    """One kind of completion. Each method gives members of `choices`."""

    prefix: str
    """Of ids."""
    whole_object: str
    chunk_object: str

    def opening(self, index: int) -> dict[str, Any] | None:
        """What begins a choice in a stream, if anything does."""
        ...

    def piece(self, choice: Choice, piece: Piece, words: Words) -> dict[str, Any]:
        """Part of a choice in a stream."""
        ...

    def ending(self, choice: Choice) -> dict[str, Any]:
        """What ends a choice in a stream."""
        ...

    def whole(self, choice: Choice, words: Words) -> dict[str, Any]:
        """A choice, not streamed."""
        ...


class ChatShape:
    """`chat.completion` and `chat.completion.chunk`."""

    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any] | None:
        """The role."""
        return self._chunk(index, {"role": "assistant", "content": ""}, None, None)

    def piece(self, choice: Choice, piece: Piece, words: Words) -> dict[str, Any]:
        """Text or a call, the call as a whole; and the logprobs of tokens."""
        delta: dict[str, Any] = {"content": piece.text}
        if piece.call is not None:
            delta = {"tool_calls": [{"index": piece.call.place, **_call(piece.call)}]}
        logprobs = chat_logprobs(piece.entries, words) if piece.entries else None
        return self._chunk(choice.index, delta, logprobs, None)

    def ending(self, choice: Choice) -> dict[str, Any]:
        """Why it ended."""
        return self._chunk(choice.index, {}, None, choice.reason)

    def whole(self, choice: Choice, words: Words) -> dict[str, Any]:
        """The message."""
        calls = [_call(call) for call in choice.calls]
        text = choice.text
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text if text.strip() else None
            message["tool_calls"] = calls
        wanted = choice.request.logprobs is not None
        return {
            "index": choice.index,
            "message": message,
            "logprobs": chat_logprobs(choice.entries, words) if wanted else None,
            "finish_reason": choice.reason,
        }

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None,
        reason: str | None,
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


class TextShape:
    """`text_completion`, whole and in chunks."""

    prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"

    def opening(self, index: int) -> dict[str, Any] | None:
        """Nothing."""
        return None

    def piece(self, choice: Choice, piece: Piece, words: Words) -> dict[str, Any]:
        """Text, and the logprobs of tokens."""
        logprobs = text_logprobs(piece.entries, words) if piece.entries else None
        return self._chunk(choice.index, piece.text, logprobs, None)

    def ending(self, choice: Choice) -> dict[str, Any]:
        """Why it ended."""
        return self._chunk(choice.index, "", None, choice.reason)

    def whole(self, choice: Choice, words: Words) -> dict[str, Any]:
        """All of it."""
        wanted = choice.request.logprobs is not None
        logprobs = text_logprobs(choice.entries, words) if wanted else None
        return self._chunk(choice.index, choice.text, logprobs, choice.reason)

    def _chunk(
        self, index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def new_id(prefix: str) -> str:
    """An id that nobody can guess and that comes once."""
    return prefix + secrets.token_hex(_ID_BYTES)


def usage(choices: Sequence[Choice], n: int) -> dict[str, int]:
    """Token counts: each prompt once, all of what was answered."""
    prompt = sum(choice.prompt_tokens for choice in choices[::n])
    ends = [choice.finished for choice in choices if choice.finished is not None]
    completion = sum(end.usage.completion_tokens for end in ends)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.found.name, "arguments": call.found.arguments}
    return {"id": call.id, "type": "function", "function": function}
