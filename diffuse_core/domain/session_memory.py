"""How much memory a Session may come to take on a Stage: what is counted before it is admitted.

The most that anybody can have it take, whatever the nodes beside the Stage do: KV, what is kept
for others that may take their place, rows that wait, and what Python needs for all that. Figures
of single objects were measured with CPython 3.11 (tests/services/test_session_memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from diffuse_core.domain.shapes import ITEM_BYTES

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.domain.slices import Slice

PIECE_ROWS = 256
"""Rows of a prompt in one pass (domain.session.PREFILL_ROWS)."""
CHUNK_ROWS = 32
"""Rows after the prompt are kept in chunks of so many (domain.kept.REGROUPED_ROWS)."""
WAITING_ROWS = 4 * PIECE_ROWS
"""Hidden states that may wait (domain.session.WINDOW_ROWS)."""
WAITING_STEPS = 8192
"""Steps of tokens that may wait (services.lane.MAX_STEPS)."""
TOLD_AGAIN = 2048
"""Tokens that a last Stage can tell again (domain.draws.REMEMBERED)."""
LEAST_ROWS = 1024
"""A Host of few layers may plan for less than what one Session of so many positions takes."""

SESSION_BYTES = 32 * 1024
"""Of what there is once for each Session."""
ROW_STEP_BYTES = 1200
"""Of a step of hidden states that waits, with the frame that it came in, beside its numbers."""
TOKEN_STEP_BYTES = 320
"""Of a step of tokens that waits."""
TOKEN_BYTES = 96
"""Of a token that waits, once in what was sent and once as it came round early."""
HISTORY_BYTES = 200
"""Of a position from whose tokens guesses are made."""
DRAWN_BYTES = 104
"""Of a token that can be told again."""
LOGPROB_BYTES = 128
"""The same of each of the likeliest tokens beside it."""
COUNTED_BYTES = 192
"""Of a token that penalties count."""
GIVEN_BYTES = 64
"""Of a token that an audit is given, and what it finds there."""
BIAS_BYTES = 192
MARKS_BYTES = 256
"""Of the marks that came with rows that wait, where times are measured, but for what follows."""
STAGE_MARK_BYTES = 12
"""For each Stage before this one."""


@dataclass(frozen=True)
class Wishes:
    """What of a Session beside its length makes a difference."""

    prompt: int = 0
    """Positions of the prompt; 0 counts as none, which takes most."""
    spots: int = 0
    logprobs: int | None = None
    penalties: bool = False
    biases: int = 0
    audit: bool = False
    timed: bool = False
    index: int = 8
    """Stages before this one, where times are measured."""

    @property
    def marks(self) -> int:
        """Bytes of the marks of one step that waits."""
        return MARKS_BYTES + STAGE_MARK_BYTES * self.index if self.timed else 0


PLAIN = Wishes()


def session_bytes(
    shape: ModelShape, contract: Contract, part: Slice, rows: int, wishes: Wishes = PLAIN
) -> int:
    """Bytes that a Session of `rows` positions may come to take where `part` of a model runs."""
    width = shape.hidden * ITEM_BYTES[contract]
    is_first, is_last = part.start == 0, part.end == shape.layers
    need = SESSION_BYTES + rows * len(part) * shape.kv_bytes
    need += rows * wishes.spots * ITEM_BYTES[contract] + wishes.biases * BIAS_BYTES
    need += _waiting(rows, width, wishes, is_first=is_first)
    if not is_last:
        # What is kept, in whole chunks; and a piece on its way, to the next Stage and in an audit.
        need += (rows + CHUNK_ROWS + 2 * min(rows, PIECE_ROWS)) * width
    else:
        need += _drawing(rows, wishes)
    return need


def _waiting(rows: int, width: int, wishes: Wishes, *, is_first: bool) -> int:
    """What came in and had no pass yet."""
    pieces, answer = -(-min(wishes.prompt, rows) // PIECE_ROWS), max(0, rows - wishes.prompt)
    if is_first:
        steps, each = min(pieces + answer, WAITING_STEPS), TOKEN_STEP_BYTES
        need = rows * (TOKEN_BYTES + HISTORY_BYTES)
    else:
        steps, each = min(pieces + answer, WAITING_ROWS), ROW_STEP_BYTES
        need = min(rows, WAITING_ROWS) * width
    return need + steps * (each + wishes.marks)


def _drawing(rows: int, wishes: Wishes) -> int:
    """What a last Stage has of the tokens it drew."""
    told = DRAWN_BYTES
    if wishes.logprobs is not None:
        told += DRAWN_BYTES + wishes.logprobs * LOGPROB_BYTES
    need = min(max(0, rows - wishes.prompt), TOLD_AGAIN) * told
    if wishes.penalties:
        need += rows * COUNTED_BYTES
    if wishes.audit:
        need += rows * GIVEN_BYTES
    return need


def least_room(shape: ModelShape, contract: Contract, part: Slice) -> int:
    """What a Host of `part` has room for in any case: one Session of LEAST_ROWS positions."""
    return session_bytes(shape, contract, part, min(shape.context, LEAST_ROWS))


@lru_cache(4096)
def most_rows(
    shape: ModelShape, contract: Contract, part: Slice, room: int, wishes: Wishes = PLAIN
) -> int:
    """Positions of the longest Session that `room` bytes are enough for; 0 when for none."""
    least, beyond = 0, shape.context + 1
    while beyond - least > 1:
        rows = (least + beyond) // 2
        fits = session_bytes(shape, contract, part, rows, wishes) <= room
        least, beyond = (rows, beyond) if fits else (least, rows)
    return least
