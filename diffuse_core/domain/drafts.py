"""Guessing tokens ahead: what a Session's own history says comes next, and whether it pays.

Guesses are looked up (Saxena, prompt look-up decoding, 2023): where the last tokens stood before,
what followed them there is guessed to follow again. How many to guess is weighed in
`domain.draft_window`: each guess costs a row in every Stage's pass.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from diffuse_core.domain.draft_window import DraftWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORTEST = 2
"""Tokens that must agree before what followed them is worth a look."""
LONGEST = 16
"""A place that agrees in so many is not compared any further."""
PLACES = 32
"""Earlier places of the last two tokens that are compared, the latest ones."""
_TOKEN_BITS = 25


class History:
    """Token ids, and for each pair of them the places after which it stood.

    Appending takes the same time whatever the length; a look-up at most PLACES * LONGEST
    comparisons. Memory: 8 bytes a token, and one entry of a dictionary for each different pair.
    """

    def __init__(self) -> None:
        self._tokens = array("I")
        self._earlier = array("I")
        """For each index the one before it that follows the same pair; 0 ends the chain."""
        self._latest: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, token: int) -> None:
        """One more token; from now on it is what followed the two before it."""
        tokens, at = self._tokens, len(self._tokens)
        before = 0
        if at >= SHORTEST:
            pair = tokens[at - 2] << _TOKEN_BITS | tokens[at - 1]
            before = self._latest.get(pair, 0)
            self._latest[pair] = at
        tokens.append(token)
        self._earlier.append(before)

    def find(self) -> tuple[int, int]:
        """Index of what followed the last tokens where they stood before, and how many agree.

        The longest agreement wins, and of equals the latest. (0, 0) where there is none.
        """
        tokens, end = self._tokens, len(self._tokens)
        if end < SHORTEST:
            return 0, 0
        place = self._latest.get(tokens[end - 2] << _TOKEN_BITS | tokens[end - 1], 0)
        best, longest, looks = 0, 0, PLACES
        while place and looks and longest < LONGEST:
            same, most = SHORTEST, min(LONGEST, place)
            while same < most and tokens[place - 1 - same] == tokens[end - 1 - same]:
                same += 1
            if same > longest:
                best, longest = place, same
            place = self._earlier[place]
            looks -= 1
        return best, longest

    def at(self, index: int) -> int:
        """The token at an index."""
        return self._tokens[index]

    def after(self, index: int, count: int) -> tuple[int, ...]:
        """So many tokens from `index` on; past the end it goes on as from `index` again."""
        found = tuple(self._tokens[index : index + count])
        if not found:
            return ()
        whole, rest = divmod(count, len(found))
        return found * whole + found[:rest]


class Drafter:
    """Proposes tokens of one Session, and learns from what became of them.

    It follows one earlier place of the text as long as that agrees with what is drawn. Each
    drawn token tells whether the place was right, whether or not it had been proposed, so that
    trust costs nothing to learn. The same calls give the same proposals.
    """

    def __init__(self) -> None:
        self._history = History()
        self._window = DraftWindow()
        self._place = 0
        self._agree = 0
        self._stale = False

    def __len__(self) -> int:
        """Tokens known, from the first of the prompt on."""
        return len(self._history)

    def extend(self, tokens: Sequence[int], *, drawn: bool = False) -> None:
        """More tokens of the Session: a piece of its prompt, or what was drawn."""
        append = self._history.append
        if not drawn:
            for token in tokens:
                append(token)
            self._stale = True
            return
        for token in tokens:
            self._follow(token)

    def _follow(self, token: int) -> None:
        self._look()
        if self._agree:
            right = self._history.at(self._place) == token
            self._window.seen(self._agree, right)
            if right:
                self._place += 1
                self._agree += 1
            else:
                self._stale = True
        else:
            self._stale = True
        self._history.append(token)

    def _look(self) -> None:
        if self._stale:
            self._place, self._agree = self._history.find()
            self._stale = False

    def propose(self, most: int) -> tuple[int, ...]:
        """Tokens to run after the last one in the next pass, at most `most`; often none."""
        self._look()
        count = self._window.size(self._agree, most)
        return self._history.after(self._place, count) if count else ()

    def settled(self, proposed: int, accepted: int, seconds: float) -> None:
        """What a pass gave: how many of the proposed tokens were right, and what it took.

        `seconds` is from the moment that the first Stage had the last drawn token to the moment
        that it had the next one; told for passes without proposals as well (0, 0, seconds), for
        they are what the others are compared with. Not told of passes that waited for something
        else, such as a Client's credits or another Route.
        """
        self._window.settled(proposed, accepted, seconds)
