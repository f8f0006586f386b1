"""Changes to inputs: of bytes without any sense, and of msgpack with some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.msgpack_scan import HOSTILE, tokens

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

MAX_BYTES = 16 * 2**10
"""What an input grows to at most; a deep nest may come on top."""
_EDGES = (0, 1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 192, 223, 224, 254, 255)
_SCANNED = 2048
_NESTS = (30, 400, 1100, 5000)


class Mutator:
    """Makes new inputs of old ones.

    Args:
        rng: decides everything; the same one gives the same inputs.
        corpus: what to begin with; may grow meanwhile.
        words: bytes that mean something to the target.
    """

    def __init__(
        self, rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes] = ()
    ) -> None:
        self._rng = rng
        self._corpus = corpus
        self._words = (*words, *HOSTILE)
        bytewise = (self._flip, self._set, self._cut, self._drop, self._repeat, self._splice)
        # What keeps the structure gets further into the target, so it comes more often.
        self._steps: tuple[Callable[[bytearray], None], ...] = (
            *bytewise,
            self._put_word,
            self._noise,
            self._number,
            *(self._token,) * 6,
        )

    def next(self) -> bytes:
        """An input that was changed in one to five places."""
        rng = self._rng
        data = bytearray(rng.choice(self._corpus)) if self._corpus else bytearray()
        for _ in range(1 + (rng.random() < 0.5) + (rng.random() < 0.3) * rng.randrange(4)):
            rng.choice(self._steps)(data)
        if rng.random() < 0.004:
            self._nest(data)
        elif len(data) > MAX_BYTES:
            del data[MAX_BYTES:]
        return bytes(data)

    def change(self, data: bytes) -> bytes:
        """One change to `data`, for a fuzzer that chooses what to change by itself."""
        changed = bytearray(data)
        self._rng.choice(self._steps)(changed)
        return bytes(changed)

    # --- without sense -----------------------------------------------------------------------

    def _at(self, data: bytearray) -> int:
        return self._rng.randrange(len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._rng.randrange(len(data))] = self._rng.choice(_EDGES)

    def _cut(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _drop(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._rng.choice((1, 1, 2, 4, 8, 32))]

    def _repeat(self, data: bytearray) -> None:
        at = self._at(data)
        piece = bytes(data[at : at + self._rng.choice((1, 4, 16, 64))])
        data[at:at] = piece * self._rng.choice((1, 1, 2, 16, 64))

    def _splice(self, data: bytearray) -> None:
        """Go on as another input does."""
        if self._corpus:
            other = self._rng.choice(self._corpus)
            data[self._at(data) :] = other[self._rng.randrange(len(other) + 1) :]

    def _noise(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._rng.randbytes(self._rng.choice((1, 2, 4, 16, 64)))

    def _put_word(self, data: bytearray) -> None:
        at, word = self._at(data), self._rng.choice(self._words)
        data[at : at + len(word) * self._rng.randrange(2)] = word

    def _number(self, data: bytearray) -> None:
        """An edge of a fixed-width number, as lengths and counts are written outside msgpack."""
        width = self._rng.choice((1, 2, 4, 8))
        value = self._rng.choice((0, 1, 2**31, 2 ** (8 * width - 1), -1, len(data), len(data) + 1))
        order = self._rng.choice(("little", "big"))
        at = self._at(data)
        data[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, order)

    # --- with some ---------------------------------------------------------------------------

    def _token(self, data: bytearray) -> None:
        """Put another value, or another length, in the place of one that is there."""
        rng = self._rng
        start = rng.choice((0, 0, 4, 4, 3, 1)) if rng.random() < 0.8 else self._at(data)
        found = tokens(bytes(data[start : start + _SCANNED]))
        if not found:
            return
        token = rng.choice(found)
        at, end = start + token.start, start + token.end
        head = start + token.head
        choice = rng.randrange(4)
        if choice == 0:
            data[at:end] = rng.choice(HOSTILE)
        elif choice == 1:
            other = rng.choice(found)
            data[at:end] = data[start + other.start : start + other.end]
        elif choice == 2:
            data[at:at] = data[at:end]
        else:
            data[at:head] = token.other_head(rng)

    def _nest(self, data: bytearray) -> None:
        found = tokens(bytes(data[4 * self._rng.randrange(2) :][:_SCANNED]))
        at = self._rng.choice(found).start if found else self._at(data)
        depth = self._rng.choice(_NESTS)
        data[at:at] = self._rng.choice((b"\x91", b"\x81\xa1x", b"[", b'{"x":')) * depth
