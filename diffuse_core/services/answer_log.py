"""What there is of an answer: every token drawn, and those that nobody has read yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.logprobs import sound_logprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.domain.messages import TokensDrawn


class AnswerLog:
    """The tokens of one generation, over however many Routes and Sessions they came."""

    def __init__(self, prompt: Sequence[int], decoding: DecodingParams, vocab: int) -> None:
        self.prompt = tuple(prompt)
        self.decoding = decoding
        self.drawn: list[int] = []
        self.finished = False
        self.read = 0
        """Tokens that were taken out."""
        self._vocab = vocab
        self._unread: deque[TokensDrawn] = deque()

    @property
    def rows(self) -> int:
        """Positions of prompt and answer so far."""
        return len(self.prompt) + len(self.drawn)

    @property
    def budget(self) -> int:
        """Positions of prompt and answer at most."""
        return len(self.prompt) + self.decoding.max_tokens

    @property
    def unread(self) -> bool:
        """Whether tokens wait to be taken out."""
        return bool(self._unread)

    def take_in(self, message: TokensDrawn, *, again: bool = False) -> str | None:
        """Take what a last Stage sent; what is wrong with it, if it cannot be.

        With `again` it may begin with tokens that came before: a Stage does not know which of
        them were lost with a link.
        """
        if again:
            message = self._news(message)
            if not message.tokens:
                return None
        if self.finished or message.position != self.rows:
            return "it lost its position"
        if len(self.drawn) + len(message.tokens) > self.decoding.max_tokens:
            return "it sent more tokens than were asked for"
        if max(message.tokens) >= self._vocab:
            return "it sent a token that the model does not have"
        if not self._ends_as_asked(message):
            return "it ended the answer where it does not end, or went on behind its end"
        asked = self.decoding.logprobs
        if not sound_logprobs(message.tokens, message.logprobs, asked, self._vocab):
            return "it sent log-probabilities that cannot be"
        self.drawn.extend(message.tokens)
        if len(self.drawn) == self.decoding.max_tokens and message.finish is None:
            # That it is the end is known here as well; nobody could go on from there.
            message = msgspec.structs.replace(message, finish="length")
        self.finished = message.finish is not None
        self._unread.append(message)
        return None

    def _ends_as_asked(self, message: TokensDrawn) -> bool:
        """Whether the answer ends with the first token that ends one, and nowhere else.

        Else part of an answer would be shown as the whole of it.
        """
        *before, last = message.tokens
        ids = self.decoding.stop_ids
        if any(token in ids for token in before):
            return False
        if last in ids:
            return message.finish == "stop"
        full = len(self.drawn) + len(message.tokens) == self.decoding.max_tokens
        return message.finish is None or (full and message.finish == "length")

    def _news(self, message: TokensDrawn) -> TokensDrawn:
        """What of a message is not known yet."""
        known = max(0, self.rows - message.position)
        return msgspec.structs.replace(
            message,
            position=message.position + known,
            tokens=message.tokens[known:],
            logprobs=message.logprobs[known:],
        )

    def take_out(self) -> TokensDrawn:
        """The next tokens that nobody has read; there must be some."""
        message = self._unread.popleft()
        self.read += len(message.tokens)
        return message
