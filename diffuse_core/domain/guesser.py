"""Guesses of a first Stage: what it may guess, from what it knows of the Session so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.drafts import Drafter

if TYPE_CHECKING:
    from diffuse_core.domain.token_line import Tokens


class Guesser:
    """Keeps a Drafter, if the Session is to have one, up to date.

    Passes are measured only where nothing but the ring stood between two tokens.
    """

    def __init__(self) -> None:
        self._drafter: Drafter | None = None
        self._most = 0
        self._had: float | None = None

    def allow(self, most: int, known: int) -> None:
        """Guess at most so many tokens, where `known` ones are there already.

        Who did not see the beginning guesses nothing.
        """
        self._most = most
        if self._drafter is None and most and not known:
            self._drafter = Drafter()

    def fed(self, tokens: Tokens, prompt: int) -> None:
        """Tokens came from the Client."""
        self._had = None
        self._learn(tokens, drawn=tokens.position >= prompt)

    def after(
        self, tokens: Tokens, guessed: int, right: int, most: int, now: float
    ) -> tuple[int, ...]:
        """Guesses after tokens that came round, of at most `most` tokens.

        Of the pass that gave them `guessed` rows were of guesses, `right` of these were good.
        """
        drafter = self._drafter
        if drafter is None:
            return ()
        if self._had is not None:
            drafter.settled(guessed, right, now - self._had)
        self._had = now
        self._learn(tokens, drawn=True)
        most = min(most, self._most)
        return drafter.propose(most) if most > 0 else ()

    def settle(self) -> None:
        """The ring was interrupted."""
        self._had = None

    def _learn(self, tokens: Tokens, *, drawn: bool) -> None:
        drafter = self._drafter
        if drafter is None:
            return
        known = len(drafter) - tokens.position
        if 0 <= known < len(tokens.tokens):
            drafter.extend(tokens.tokens[known:], drawn=drawn)
