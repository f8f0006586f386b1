"""How many guessed tokens are worth their rows: the size of the next pass.

Expected tokens a second are compared for each size of pass. What a pass takes is learned from the
Session's own passes: on a slow link more rows cost next to nothing, on a processor that computes
in 4 bit each one costs a quarter of a pass. How likely a guess is right is learned for each length
of agreement. A purse bounds what may be lost: guessing spends from it when it loses, earns when it
wins, and gets a small allowance with time, so that however a text misleads, a generation takes at
most about 2 % longer than one that never guesses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (1, 2, 3, 5, 7, 11, 15, 23, 31)
"""Guesses in a pass; few, so that what each takes is soon known."""
PRIOR_ROW = 0.25
"""What one more row is thought to cost before it was measured, in passes of one row: the dearest
there is (eight rows of a 4 bit model on a processor take 2.8 times as long as one)."""
HOPEFUL_ROW = 0.02
"""What it may cost instead, where the link takes most of the time: worth a cheap trial."""
MOST_TRIED = 2
"""Guesses in a pass that is run to learn what they cost."""
RETRY = 64
"""After so many passes without guesses what rows cost is no longer believed."""
CHECK = 48
"""After so many passes with guesses one without is run, to know what it takes by now."""
ALLOWANCE = 0.015
"""Part of the time that may be lost on guesses."""
PURSE = 0.5
"""What may be lost at the very start, in passes of one row."""
MOST_PURSE = 8.0
_MEMORY = 16
_TRUST = (
    # Tokens that agree, and how likely the next one is thought to agree before any was seen.
    (2, 0.35),
    (3, 0.5),
    (4, 0.6),
    (5, 0.7),
    (7, 0.8),
    (10, 0.88),
    (16, 0.92),
)
_PRIOR_WEIGHT = 2.0
_FADE = 0.95


def _kind(agree: int) -> int:
    for index in range(len(_TRUST) - 1, -1, -1):
        if agree >= _TRUST[index][0]:
            return index
    return 0


class _Mean:
    """A mean of the last few figures, that one wild figure does not move far."""

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0

    def add(self, figure: float) -> None:
        self.count += 1
        if self.count <= 2:
            # The first passes warm things up; the smaller one is nearer to the truth.
            self.value = figure if self.count == 1 else min(self.value, figure)
            return
        figure = min(figure, 3 * self.value) if self.value > 0 else figure
        self.value += (figure - self.value) / min(self.count, _MEMORY)


class DraftWindow:
    """Decides how many tokens to guess, and learns whether that was wise."""

    def __init__(self) -> None:
        self._right = [part * _PRIOR_WEIGHT for _, part in _TRUST]
        self._tried = [_PRIOR_WEIGHT] * len(_TRUST)
        self._plain = _Mean()
        self._taken = {size: _Mean() for size in SIZES}
        self._row = PRIOR_ROW
        self._rows_measured = 0
        self._purse = PURSE
        self._since_plain = 0
        self._since_guess = 0

    def seen(self, agree: int, right: bool) -> None:
        """After `agree` tokens that agreed with an earlier place the next one did, or not."""
        kind = _kind(agree)
        self._right[kind] = self._right[kind] * _FADE + right
        self._tried[kind] = self._tried[kind] * _FADE + 1.0

    def settled(self, proposed: int, accepted: int, seconds: float) -> None:
        """A pass with so many guesses took so long; figures that cannot be are passed over."""
        if not (math.isfinite(seconds) and seconds > 0) or not 0 <= accepted <= proposed:
            return
        if proposed:
            self._since_guess = 0
            self._since_plain += 1
            self._learn(proposed, accepted, seconds)
            return
        self._since_plain = 0
        self._since_guess += 1
        self._plain.add(seconds)
        self._earn(ALLOWANCE * min(1.0, seconds / self._plain.value))

    def _learn(self, proposed: int, accepted: int, seconds: float) -> None:
        plain = self._plain.value
        if plain <= 0:
            return
        # A stall that has nothing to do with guesses is charged no more than twice.
        taken = min(seconds / plain, 2 * self._cost(proposed))
        row = max(0.0, taken - 1.0) / proposed
        self._rows_measured += 1
        self._row += (row - self._row) / min(self._rows_measured + 1, _MEMORY)
        if proposed in self._taken:
            self._taken[proposed].add(taken)
        self._earn(accepted + 1 - taken + ALLOWANCE * taken)

    def _earn(self, passes: float) -> None:
        self._purse = min(MOST_PURSE, self._purse + passes)

    def _cost(self, size: int) -> float:
        """Of a pass with so many guesses, in passes without any."""
        line = 1.0 + self._row * size
        known = self._taken.get(size)
        if known is None or not known.count:
            return line
        weight = min(known.count, 4)
        return max(1.0, (known.value * weight + line) / (weight + 1))

    def size(self, agree: int, most: int) -> int:
        """How many of at most `most` tokens to guess, where so many agree with their place."""
        if agree <= 0 or most <= 0 or self._plain.count < 2 or self._since_plain >= CHECK:
            return 0
        unsure = self._rows_measured < 3 or self._since_guess >= RETRY
        best, best_rate = 0, 1.0
        hopeful, hopeful_rate = 0, 1.0
        for size, tokens in self._expected(agree, most):
            cost = self._cost(size)
            if cost - 1.0 > self._purse:
                break
            if tokens / cost > best_rate:
                best, best_rate = size, tokens / cost
            rate = tokens / (1.0 + HOPEFUL_ROW * size)
            if unsure and rate > hopeful_rate:
                hopeful, hopeful_rate = size, rate
        return best or min(hopeful, MOST_TRIED)

    def _expected(self, agree: int, most: int) -> Iterator[tuple[int, float]]:
        """Sizes of at most `most`, and how many tokens a pass with so many guesses may give."""
        tokens, likely, guessed = 1.0, 1.0, 0
        for size in SIZES:
            if size > most:
                return
            while guessed < size:
                kind = _kind(agree + guessed)
                likely *= self._right[kind] / self._tried[kind]
                tokens += likely
                guessed += 1
            yield size, tokens
