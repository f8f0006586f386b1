"""Where a token spent its time: marks that travel with it, from Stage to Stage.

Marks are a send stamp (4 bytes) and, for each Stage passed so far, three figures of 4 bytes: the
way to it, the wait there for its pass, and the pass; all in microseconds, unsigned, little-endian.
The Stage before stamps a message with its own clock as it sends it. No two clocks agree, so a
stamp alone says nothing; see HopClock for what a receiver makes of it.

Marks are for a person to look at and nothing else depends on them. They come from strangers: what
has a wrong length or holds figures that cannot be is dropped, here or by the next who reads it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import MARK_BYTES, MAX_STAGES
from diffuse_core.domain.view import StageTiming

if TYPE_CHECKING:
    from collections.abc import Iterator

STAMP_BYTES = 4
MOST_US = 600_000_000
"""Nothing takes longer than ten minutes: the Session would have been given up."""
WINDOW_US = 20_000_000
"""So long a least difference of two clocks is believed; they drift apart by up to 2 ms in it."""

_WRAP = 2**32
_HALF = 2**31
_ROW = struct.Struct("<III")


def micros(seconds: float) -> int:
    """A monotonic clock's reading as a stamp: microseconds modulo 2**32."""
    return int(seconds * 1e6) % _WRAP


def begin(now: int) -> bytes:
    """Marks that tell of no Stage yet, stamped: what goes round the ring with a token."""
    return (now % _WRAP).to_bytes(STAMP_BYTES, "little")


def stamped(marks: bytes, now: int) -> bytes:
    """The same marks, to be sent at `now`; none stay none."""
    return begin(now) + marks[STAMP_BYTES:] if marks else b""


def stamp_of(marks: bytes) -> int | None:
    """When marks were sent, by the sender's clock; None where they tell nothing."""
    if len(marks) < STAMP_BYTES:
        return None
    return int.from_bytes(marks[:STAMP_BYTES], "little")


def add(marks: bytes, index: int, wire_us: int, queue_us: int, compute_us: int) -> bytes:
    """Marks with the figures of the Stage at `index`; none where the earlier ones do not fit.

    At a first Stage `marks` may be empty: its rows came without any.
    """
    if not 0 <= index < MAX_STAGES:
        return b""
    if index == 0:
        marks = begin(stamp_of(marks) or 0)
    if len(marks) != STAMP_BYTES + MARK_BYTES * index:
        return b""
    return marks + _ROW.pack(*(_bounded(figure) for figure in (wire_us, queue_us, compute_us)))


def read(marks: bytes, stages: int) -> tuple[StageTiming, ...]:
    """Figures of each Stage of a Route of so many; none where they cannot be."""
    if stages < 1 or len(marks) != STAMP_BYTES + MARK_BYTES * stages:
        return ()
    rows: Iterator[tuple[int, int, int]] = _ROW.iter_unpack(marks[STAMP_BYTES:])
    found = []
    for row in rows:
        if max(row) > MOST_US:
            return ()
        wire, queue, compute = (figure / 1000 for figure in row)
        found.append(StageTiming(wire_ms=wire, queue_ms=queue, compute_ms=compute))
    return tuple(found)


def _bounded(figure: int) -> int:
    return max(0, min(figure, MOST_US))


class HopClock:
    """What a message took to get here from one sender, whose clock is not ours.

    Arrival minus stamp is the offset of the clocks plus the way. The least difference seen
    belongs to a message that was not held up; for it the way is taken to be half of the link's
    round trip (as NTP does, it supposes both ways alike), and what another one took beyond it
    was spent on its way. Where the round trip is not known only that excess is counted. The
    offset itself would only cancel in the sum around the whole ring.
    """

    def __init__(self, rtt_s: float = 0.0) -> None:
        self.rtt_s = rtt_s
        self._least: int | None = None
        """Least arrival minus stamp of this window and the one before, modulo 2**32."""
        self._recent = 0
        self._turned = 0

    def wire_us(self, marks: bytes, now: int) -> int:
        """Microseconds that a message with these marks was on its way, arriving at `now`.

        0 where the marks tell nothing.
        """
        stamp = stamp_of(marks)
        if stamp is None:
            return 0
        difference = (now - stamp) % _WRAP
        if self._least is None:
            self._least = self._recent = difference
            self._turned = now
        elif (now - self._turned) % _WRAP >= WINDOW_US:
            self._least = _earlier(self._recent, difference)
            self._recent = difference
            self._turned = now
        else:
            self._least = _earlier(self._least, difference)
            self._recent = _earlier(self._recent, difference)
        excess = (difference - self._least) % _WRAP
        return _bounded(int(self.rtt_s * 5e5) + excess)


def _earlier(one: int, other: int) -> int:
    """The lesser of two differences that count modulo 2**32."""
    return other if (other - one) % _WRAP >= _HALF else one
