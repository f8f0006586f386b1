"""Samples of hidden states: a few numbers of each row, at coordinates that the Client chose.

What a Stage gave is known to the Stage after it, which keeps these few numbers of every row that
it took; another replica that computes the same rows gives its own. The Stage itself does not know
where it will be looked at.
"""

from __future__ import annotations

import math
import statistics
import struct
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import Contract

MAX_SPOTS = 16
TOLD_ROWS = 1024
"""Rows whose numbers are told in one message."""

TOLERANCE: dict[Contract, float] = {"fp32": 1e-3, "bf16": 0.08, "int8": 0.08, "int4": 0.08}
"""By how much the rows of honest replicas may differ in the mean, relative to their size.

Measured with SmolLM2-135M, ten to fifteen layers, as the worst of several prompts: the lean engine
against the general one 2e-6 (fp32) and 0.019 (bf16); one thread against two, and other pieces of a
prompt, 8e-7 (fp32) and nothing (bf16, int8, int4; where bf16 is not slow); AVX2 against AVX-512
0.022 (bf16). So what differs by less than this share cannot be told from another machine's
rounding. Weights of int8 and int4 are the same numbers everywhere; what comes between the layers
is bf16 there as well.
"""
ROW_FACTOR = 6.0
"""As many times as far apart a single row may be; measured 0.053 against 0.018 in the mean."""
GAP: dict[Contract, float] = {"fp32": 0.01, "bf16": 0.75, "int8": 0.75, "int4": 0.75}
"""How far out of reach, in nats, a token may be that an honest Stage draws (Sampler.examine).

Measured as above: 0.5 in bf16, where up to a quarter of the tokens that are drawn at temperature
0.8 are others, given the same ones before; and 0 in fp32.
"""
NEARLY: dict[Contract, float] = {"fp32": 0.01, "bf16": 0.5, "int8": 0.5, "int4": 0.5}
"""Nats by which logits may differ whose order is another on another machine.

Without it 2 of 26 honest answers of 20 tokens with top-k and top-p were farther out of reach in
bf16 than GAP (SmolLM2-135M; as computed with AVX2 and with AVX-512), with it none of 48.
"""

Verdict = Literal["agrees", "differs"]
_KINDS: dict[int, Literal["H", "I"]] = {2: "H", 4: "I"}
"""How memoryview calls what has so many bytes."""


class TakenSpots:
    """What one Session keeps of the rows that it took."""

    def __init__(self, spots: Sequence[int], width: int, item: int) -> None:
        """Rows have `width` numbers of `item` bytes each."""
        self.spots = tuple(spots)
        self._width = width
        self._item = item
        self._data = bytearray()

    def take(self, position: int, rows: int, body: bytes | memoryview) -> None:
        """Keep the numbers of rows from `position` on; they replace what came before for them."""
        if self.spots:
            at = position * len(self.spots) * self._item
            # Only what is behind the row that comes now was void.
            del self._data[at:]
            self._data += pick(body, rows, self._width, self._item, self.spots)

    def tell(self, position: int, rows: int) -> bytes:
        """Of rows from `position` on, as far as there are any; fp32, little-endian."""
        step = len(self.spots) * self._item
        return widened(bytes(self._data[position * step : (position + rows) * step]), self._item)


def pick(
    body: bytes | memoryview, rows: int, width: int, item: int, spots: Sequence[int]
) -> bytes:
    """The numbers of each row at these coordinates, each smaller than `width`."""
    kind = _KINDS[item]
    view = memoryview(body)[: rows * width * item].cast(kind)
    picked = bytearray(rows * len(spots) * item)
    numbers = memoryview(picked).cast(kind)
    # A coordinate of all rows at once: a number at a time, 1,024 rows took 7 ms instead of 0.1.
    for place, spot in enumerate(spots):
        numbers[place :: len(spots)] = view[spot::width]
    return bytes(picked)


def widened(data: bytes, item: int) -> bytes:
    """Numbers of `item` bytes as fp32: bf16 is its upper half."""
    if item == 4:
        return data
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return bytes(wide)


def numbers(body: bytes | memoryview) -> tuple[float, ...]:
    """Read fp32 numbers."""
    return struct.unpack(f"<{len(body) // 4}f", body)


def compare(
    one: Sequence[float], other: Sequence[float], spots: int, contract: Contract
) -> Verdict:
    """Whether two nodes gave the same rows, `spots` numbers each, but for rounding."""
    found = apart(one, other, spots)
    return "agrees" if found is not None and found <= TOLERANCE[contract] else "differs"


def apart(one: Sequence[float], other: Sequence[float], spots: int) -> float | None:
    """How far apart the rows are that two nodes gave; None where they cannot be compared.

    The difference of a row is taken relative to its size; but of rows far smaller than others
    hardly anything is asked, for their size is rounding itself.
    """
    if len(one) != len(other) or not one or not all(map(math.isfinite, (*one, *other))):
        return None
    starts = range(0, len(one), spots)
    sizes = [math.hypot(*other[at : at + spots]) for at in starts]
    least = 0.05 * statistics.median(sizes)
    return difference(
        [
            math.dist(one[at : at + spots], other[at : at + spots]) / max(size, least, 1e-30)
            for at, size in zip(starts, sizes, strict=True)
        ]
    )


def difference(each: Sequence[float]) -> float:
    """How far apart rows are: in the mean, or the farthest, which may be more."""
    return max(statistics.fmean(each), max(each) / ROW_FACTOR)


def drawn_so(margins: Sequence[float], contract: Contract) -> Verdict:
    """Whether tokens can have been drawn, by how much each was out of reach."""
    found = out_of_reach(margins)
    return "agrees" if found is not None and found <= GAP[contract] else "differs"


def out_of_reach(margins: Sequence[float]) -> float | None:
    """By how many nats the farthest token was; None where that makes no sense."""
    fine = bool(margins) and all(0.0 <= margin < math.inf for margin in margins)
    return max(margins) if fine else None
