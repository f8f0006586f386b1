"""What a Stage gave to the next one, kept for another that may take that one's place.

Rows of a prompt go again in the very pieces they were computed in, because the last bits of a
row may depend on the rows that come with it. Rows after the prompt do not, and may be regrouped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from diffuse_core.errors import Refused

REGROUPED_ROWS = 32
"""Single rows that are sent in one message when many wait, and that are kept together."""


@dataclass(frozen=True, slots=True)
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
    """All of one Session's outputs, without gaps.

    Pieces of the prompt are kept as they are. Rows after it lie in chunks of REGROUPED_ROWS: an
    object for each of them would take as much again as a narrow row.
    """

    def __init__(self, prompt: int, row_bytes: int, most_rows: int = REGROUPED_ROWS) -> None:
        """`row_bytes` is the size of a hidden state; no message has more than `most_rows`."""
        self._prompt = prompt
        self._row_bytes = row_bytes
        self._most_rows = min(most_rows, REGROUPED_ROWS)
        self._pieces: list[Piece] = []
        self._starts: list[int] = []
        self._chunks: list[bytearray] = []
        self._rows = 0
        """That lie in the chunks, from the end of the prompt on."""
        self._group = prompt
        """Where the last rows begin that came together."""
        self._drafts: tuple[int, ...] = ()
        """The guessed ones of them, while nothing tells whether they were right."""

    @property
    def end(self) -> int:
        """How many rows are kept."""
        if self._rows:
            return self._prompt + self._rows
        return self._pieces[-1].end if self._pieces else 0

    @property
    def size(self) -> int:
        """How many bytes they take."""
        prompt = sum(len(piece.data) for piece in self._pieces)
        return prompt + sum(map(len, self._chunks))

    def append(self, piece: Piece) -> None:
        """Keep what the next rows gave; rows from its position on are forgotten.

        Raises:
            Refused: rows between are missing, or the bytes are not those of its rows.
        """
        self.truncate(piece.position)
        if piece.position != self.end or len(piece.data) != piece.rows * self._row_bytes:
            raise Refused("the executor gave other hidden states than were due", "lost")
        if piece.position < self._prompt:
            self._pieces.append(piece)
            self._starts.append(piece.position)
            return
        # Drafts before it go: the rows that come now tell which of them were right.
        self._group, self._drafts = piece.position, piece.drafts
        self._write(piece.data)
        self._rows += piece.rows

    def truncate(self, length: int) -> None:
        """Forget rows from position `length` on."""
        if self._rows and length < self.end:
            self._rows = max(0, length - self._prompt)
            del self._chunks[-(-self._rows // REGROUPED_ROWS) :]
            self._group, self._drafts = min(self._group, length), ()
        while self._pieces and self._pieces[-1].position >= length:
            self._pieces.pop()
            self._starts.pop()
        if self._pieces and self._pieces[-1].end > length:
            raise _middle()

    def after(self, position: int) -> Piece | None:
        """What to send to a Stage that has the rows before `position`; None when it has all.

        Raises:
            Refused: that is in the middle of a piece of the prompt.
        """
        if position >= self.end:
            return None
        if position < self._prompt:
            piece = self._pieces[bisect_right(self._starts, position) - 1]
            if position > piece.position:
                raise _middle()
            return piece
        end = self.end
        if self._drafts:
            if position > self._group:
                # Of a row that it has guesses were made; they are of no use without it.
                return None
            if position == self._group:
                return Piece(position, end - position, self._read(position, end), self._drafts)
            end = self._group
        end = min(end, position + self._most_rows)
        return Piece(position, end - position, self._read(position, end))

    def row_from(self, position: int) -> Piece | None:
        """Rows from this very one on, to be looked at; None when there are none."""
        if not 0 <= position < self.end:
            return None
        if position >= self._prompt:
            end = min(self.end, position + REGROUPED_ROWS)
            return Piece(position, end - position, self._read(position, end))
        piece = self._pieces[bisect_right(self._starts, position) - 1]
        at = (position - piece.position) * self._row_bytes
        return Piece(position, piece.end - position, memoryview(piece.data)[at:])

    def _write(self, data: bytes | memoryview) -> None:
        """Put rows behind those in the chunks."""
        view, width, row = memoryview(data), self._row_bytes, self._rows
        while view:
            chunk, place = divmod(row, REGROUPED_ROWS)
            if chunk == len(self._chunks):
                self._chunks.append(bytearray(REGROUPED_ROWS * width))
            count = min(REGROUPED_ROWS - place, len(view) // width)
            self._chunks[chunk][place * width : (place + count) * width] = view[: count * width]
            view, row = view[count * width :], row + count

    def _read(self, position: int, end: int) -> bytes:
        """Rows after the prompt: a copy, for they may be replaced."""
        width, row, last = self._row_bytes, position - self._prompt, end - self._prompt
        parts = []
        while row < last:
            chunk, place = divmod(row, REGROUPED_ROWS)
            count = min(REGROUPED_ROWS - place, last - row)
            view = memoryview(self._chunks[chunk])
            parts.append(view[place * width : (place + count) * width])
            row += count
        return b"".join(parts)


def _middle() -> Refused:
    return Refused("rows are asked for from the middle of a piece of the prompt")
