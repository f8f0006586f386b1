"""Changes to scripts: of whole steps, and of what one of them says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.mutation import MAX_BYTES, Mutator
from tests.fuzz.script import script, steps

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

_BYTEWISE = 0.15
"""Share of inputs that are changed without heeding steps."""


class ScriptMutator:
    """Makes new scripts of old ones; otherwise like Mutator."""

    def __init__(
        self, rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes] = ()
    ) -> None:
        self._rng = rng
        self._corpus = corpus
        self._bytes = Mutator(rng, corpus, words)

    def next(self) -> bytes:
        """A script that was changed in one to four places."""
        if not self._corpus or self._rng.random() < _BYTEWISE:
            return self._bytes.next()
        written = list(steps(self._rng.choice(self._corpus)))
        for _ in range(self._rng.choice((1, 1, 2, 4))):
            self._change(written)
        return _written(written)

    def change(self, data: bytes) -> bytes:
        """One change to `data`."""
        written = list(steps(data))
        self._change(written)
        return _written(written)

    def _change(self, written: list[tuple[int, bytes]]) -> None:
        rng = self._rng
        at = rng.randrange(len(written) + 1)
        choice = rng.randrange(10) if at < len(written) else 9
        if choice < 4:
            number, argument = written[at]
            written[at] = number, self._bytes.change(argument)
        elif choice == 4:
            written[at] = rng.randrange(256), written[at][1]
        elif choice == 5:
            del written[at]
        elif choice == 6:
            written[at:at] = [written[at]] * rng.choice((1, 1, 4, 12))
        elif choice == 7:
            other = rng.randrange(len(written))
            written[at], written[other] = written[other], written[at]
        elif choice == 8:
            written.insert(rng.randrange(len(written)), written[at])
        else:
            others = list(steps(rng.choice(self._corpus)))
            start = rng.randrange(len(others) + 1)
            written[at:at] = others[start : start + rng.choice((1, 2, 8))]


def _written(written: list[tuple[int, bytes]]) -> bytes:
    """The script, as far as there is room for whole steps."""
    fitting, size = [], 0
    for number, argument in written:
        if size + len(argument) <= MAX_BYTES:
            fitting.append((number, argument))
            size += len(argument)
    return script(*fitting)
