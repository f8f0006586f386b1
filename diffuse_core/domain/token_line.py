"""The tokens of a Session as its first Stage gets them: from the Client, and round the ring.

While the Client still sends what was lost, a token may come round early; it is held until the
rows before it are there. What was guessed and turns out right needs no pass again.
"""

from __future__ import annotations

from dataclasses import dataclass

from diffuse_core.errors import Refused


@dataclass(frozen=True)
class Tokens:
    """Tokens from `position` on."""

    position: int
    tokens: tuple[int, ...]

    @property
    def end(self) -> int:
        """The position after them."""
        return self.position + len(self.tokens)


class TokenLine:
    """Which tokens have rows already."""

    def __init__(self) -> None:
        self.known = 0
        """Positions whose tokens are known, and have rows."""
        self.guesses: tuple[int, ...] = ()
        """Guessed tokens after them, which have rows as well."""
        self._early: Tokens | None = None

    def feed(self, tokens: Tokens) -> Tokens:
        """Tokens from the Client, which come strictly in order.

        Raises:
            Refused: they are not the next ones.
        """
        if tokens.position != self.known:
            raise Refused(f"rows for position {tokens.position} came where {self.known} was next")
        self.known, self.guesses = tokens.end, ()
        return tokens

    def ring(self, tokens: Tokens) -> tuple[Tokens | None, int]:
        """Tokens that were drawn; those that need rows now, and how many guesses were right.

        Raises:
            Refused: too many come early.
        """
        if tokens.end <= self.known:
            return None, 0
        if tokens.position > self.known:
            if self._early is not None and self._early != tokens:
                raise Refused("tokens came round before those that stand before them")
            self._early = tokens
            return None, 0
        new = tokens.tokens[self.known - tokens.position :]
        right = 0
        for guess, token in zip(self.guesses, new, strict=False):
            if guess != token:
                break
            right += 1
        start = self.known + right
        self.known += len(new)
        self.guesses = self.guesses[right:] if right == len(new) else ()
        return (Tokens(start, new[right:]) if right < len(new) else None), right

    def early(self) -> Tokens | None:
        """What came early, as soon as its time has come."""
        if self._early is None or self._early.position > self.known:
            return None
        early, self._early = self._early, None
        return early

    def guess(self, drafts: tuple[int, ...]) -> None:
        """These follow in the same pass as the last known token."""
        self.guesses = drafts

    def settle(self, held: int) -> None:
        """Only `held` rows are there, and no guesses."""
        self.known, self.guesses, self._early = min(self.known, held), (), None
