"""What a Stage gave to the next one, kept for another that may take that one's place.

Rows of a prompt go again in the very pieces they were computed in, because the last bits of a
row may depend on the rows that come with it. Rows after the prompt do not, and may be regrouped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

REGROUPED_ROWS = 32
"""Single rows that are sent in one message when many wait."""


@dataclass(frozen=True)
class Piece:
    """Hidden states of `rows` rows from `position` on; the last are of guessed `drafts`."""

    position: int
    rows: int
    data: bytes | memoryview
    drafts: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The position after its rows."""
        return self.position + self.rows


class Kept:
    """All of one Session's outputs, without gaps."""

    def __init__(self, prompt: int, row_bytes: int, most_rows: int = REGROUPED_ROWS) -> None:
        """`row_bytes` is the size of a hidden state; no message has more than `most_rows`."""
        self._prompt = prompt
        self._row_bytes = row_bytes
        self._most_rows = min(most_rows, REGROUPED_ROWS)
        self._pieces: list[Piece] = []
        self._starts: list[int] = []

    @property
    def end(self) -> int:
        """How many rows are kept."""
        return self._pieces[-1].end if self._pieces else 0

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return self.end * self._row_bytes

    def append(self, piece: Piece) -> None:
        """Keep what the next rows gave; rows from its position on are forgotten.

        Raises:
            Refused: rows between are missing, or the bytes are not those of its rows.
        """
        self.truncate(piece.position)
        if piece.position != self.end or len(piece.data) != piece.rows * self._row_bytes:
            raise Refused("the executor gave other hidden states than were due", "lost")
        if self._pieces and self._pieces[-1].drafts:
            # The rows that come now tell that these were right.
            self._pieces[-1] = replace(self._pieces[-1], drafts=())
        self._pieces.append(piece)
        self._starts.append(piece.position)

    def truncate(self, length: int) -> None:
        """Forget rows from position `length` on."""
        while self._pieces and self._pieces[-1].position >= length:
            self._pieces.pop()
            self._starts.pop()
        if self._pieces and self._pieces[-1].end > length:
            last = self._pieces[-1]
            self._pieces[-1] = self._slice(last, last.position, length)

    def after(self, position: int) -> Piece | None:
        """What to send to a Stage that has the rows before `position`; None when it has all.

        Raises:
            Refused: that is in the middle of a piece of the prompt.
        """
        if position >= self.end:
            return None
        index = bisect_right(self._starts, position) - 1
        piece = self._pieces[index]
        if piece.drafts and position > piece.position:
            # Of a row that it has guesses were made; they are of no use without it.
            return None
        if position > piece.position:
            piece = self._slice(piece, position, piece.end)
        if piece.position < self._prompt or piece.drafts or index == len(self._pieces) - 1:
            return piece
        return self._joined([piece, *self._pieces[index + 1 : index + self._most_rows]])

    def row_from(self, position: int) -> Piece | None:
        """Rows from this very one on, to be looked at; None when there are none."""
        if not 0 <= position < self.end:
            return None
        piece = self._pieces[bisect_right(self._starts, position) - 1]
        at = (position - piece.position) * self._row_bytes
        return Piece(position, piece.end - position, piece.data[at:])

    def _joined(self, pieces: Sequence[Piece]) -> Piece:
        rows = 0
        taken: list[Piece] = []
        for piece in pieces:
            if taken and (piece.drafts or rows + piece.rows > self._most_rows):
                break
            taken.append(piece)
            rows += piece.rows
        if len(taken) == 1:
            return taken[0]
        return Piece(taken[0].position, rows, b"".join(piece.data for piece in taken))

    def _slice(self, piece: Piece, start: int, end: int) -> Piece:
        if piece.position < self._prompt:
            raise Refused("rows are asked for from the middle of a piece of the prompt")
        width = self._row_bytes
        data = piece.data[(start - piece.position) * width : (end - piece.position) * width]
        return Piece(start, end - start, data)
