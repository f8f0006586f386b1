"""When rows of a timed Session came and went: what one Stage adds to the marks of a token."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain import waterfall
from diffuse_core.domain.messages import MARK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member
    from diffuse_core.ports import Clock

    RoundTrip = Callable[[NodeId], float]


def round_trips(members: Callable[[], Iterable[Member]]) -> RoundTrip:
    """Seconds to nodes and back, as far as they were measured or can be estimated.

    The shortest ones: a usual one holds what both ends were busy with, loading a slice say.
    """

    def round_trip(node: NodeId) -> float:
        found = next((member for member in members() if member.record.node == node), None)
        return 0.0 if found is None else found.least_rtt_s or found.distance_s or 0.0

    return round_trip


class PassClock:
    """Times of passes, in the order in which their rows came."""

    def __init__(self, clock: Clock, round_trip: RoundTrip) -> None:
        self._clock = clock
        self._round_trip = round_trip
        self._waiting: deque[tuple[bytes, int, float]] = deque()
        self._hop = waterfall.HopClock()
        self._index = 0
        self._latest = b""

    def follow(self, index: int, before: NodeId) -> None:
        """The Stage has place `index` in the Route, after the node `before` in the ring."""
        self._index = index
        self._hop = waterfall.HopClock(self._round_trip(before))

    def arrived(self, groups: int, marks: bytes) -> None:
        """Rows came, cut for so many passes."""
        now = self._clock.monotonic()
        if len(marks) > waterfall.STAMP_BYTES + MARK_BYTES * self._index:
            # Of more Stages than there are before this one: it waits for a pass, and is no use.
            marks = b""
        wire = self._hop.wire_us(marks, waterfall.micros(now))
        self._waiting.extend([(marks, wire, now)] * groups)

    def ran(self, seconds: float) -> None:
        """The next pass is over; it took so long."""
        marks, wire, came = self._waiting.popleft()
        queue = int((self._clock.monotonic() - came - seconds) * 1e6)
        self._latest = waterfall.add(marks, self._index, wire, queue, int(seconds * 1e6))

    def settle(self) -> None:
        """Rows that had no pass are forgotten."""
        self._waiting.clear()
        self._latest = b""

    def onward(self) -> bytes:
        """Marks for the next Stage."""
        return waterfall.stamped(self._latest, waterfall.micros(self._clock.monotonic()))

    def around(self) -> bytes:
        """Marks for the ring: nothing but when it was sent."""
        return waterfall.begin(waterfall.micros(self._clock.monotonic()))

    def told(self) -> bytes:
        """Marks for the Client, once for each pass."""
        latest, self._latest = self._latest, b""
        return latest
