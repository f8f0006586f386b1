"""Virtual time: what happens when, in one queue; ties in the order they were put in."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Entry = tuple[float, int, "Callable[[Any, Any, Any], None]", Any, Any, Any]


class VirtualTime:
    """A clock that jumps from one happening to the next; seconds since the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        self._queue: list[Entry] = []
        self._count = 0

    def put(
        self,
        at: float,
        call: Callable[[Any, Any, Any], None],
        one: Any = None,
        two: Any = None,
        three: Any = None,
    ) -> None:
        """Call `call(one, two, three)` at `at`. No closures: there are millions of these."""
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, call, one, two, three))

    def run_until(self, end: float) -> None:
        """Let everything happen that is due by `end`."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= end:
            self.now, _, call, one, two, three = pop(queue)
            self.happened += 1
            call(one, two, three)
        self.now = end
