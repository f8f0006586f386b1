"""What the last Stage drew: what of it the Client was told, and what may go round the ring."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import MAX_DRAFTS, TokensDrawn
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.decoding import Drawn, FinishReason
    from diffuse_core.domain.messages import OpenSession

REMEMBERED = 2048
"""Tokens that can be told again, after a link was lost with some of them."""


class Draws:
    """Tokens drawn in one Session, from the `drawn` on that another Stage drew before."""

    def __init__(self, message: OpenSession) -> None:
        self._session = message.session
        self._prompt = message.prompt
        self._budget = message.budget
        self._decoding = message.decoding
        self._credits = message.credits
        self._latest: deque[Drawn] = deque(maxlen=REMEMBERED)
        self.count = message.drawn
        self.finish: FinishReason | None = None
        self._told = message.drawn
        self._gone_round = message.drawn
        self._rang = 0

    @property
    def next(self) -> int:
        """The position of the token that is drawn next."""
        return self._prompt + self.count

    @property
    def gone_round(self) -> int:
        """The position up to which tokens went round the ring; 0 before the first."""
        return self._rang

    def add(self, drawn: Iterable[Drawn]) -> None:
        """Account for tokens that were drawn, up to the one that ends the generation."""
        for one in drawn:
            if self.finish is not None:
                return
            self._latest.append(one)
            self.count += 1
            self._credits -= 1
            if one.token in self._decoding.stop_ids:
                self.finish = "stop"
            elif self.count >= self._decoding.max_tokens or self.next >= self._budget:
                self.finish = "length"

    def grant(self, tokens: int) -> None:
        """Add credit."""
        self._credits = min(self._credits + tokens, 2**31)

    def to_go_round(self) -> tuple[int, tuple[int, ...]] | None:
        """Tokens that may go round the ring now, and the position of the first; counts as gone.

        Raises:
            Refused: too many were drawn that did not go round.
        """
        if self.finish is not None or self._credits <= 0 or self._gone_round == self.count:
            return None
        position = self._prompt + self._gone_round
        tokens = tuple(one.token for one in self._from(self._gone_round))
        self._gone_round = self.count
        self._rang = self.next
        return position, tokens

    def to_tell(self) -> TokensDrawn | None:
        """The next message to the Client, if it lacks tokens.

        Raises:
            Refused: too many were drawn since it was told the last ones.
        """
        if self._told == self.count:
            return None
        run = self._from(self._told)[: MAX_DRAFTS + 1]
        ends = self._told + len(run) == self.count
        return TokensDrawn(
            self._session,
            self._prompt + self._told,
            tuple(one.token for one in run),
            self.finish if ends else None,
            tuple(one.logprobs for one in run if one.logprobs is not None),
        )

    def told(self, message: TokensDrawn) -> None:
        """It was sent."""
        self._told = message.position + len(message.tokens) - self._prompt

    def tell_again(self, drawn: int) -> None:
        """The Client has so many tokens; what it lacks was lost.

        What it has is sent to the first Stage by the Client itself from now on.

        Raises:
            Refused: it cannot be told again.
        """
        if not self.count - len(self._latest) <= drawn <= self.count:
            raise Refused(f"the client has {drawn} tokens; this stage drew {self.count}")
        self._told = drawn
        self._gone_round = self.count

    def _from(self, index: int) -> list[Drawn]:
        start = len(self._latest) - (self.count - index)
        if start < 0:
            # Whoever feeds us goes on without the ring, and without the Client.
            raise Refused(f"more than {REMEMBERED} tokens were drawn that nobody took")
        return [self._latest[at] for at in range(start, len(self._latest))]
