"""An event loop whose time jumps to whatever is due next: minutes pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Stuck(Exception):  # noqa: N818 - a state, not a mishap
    """All tasks wait for something that can never happen."""


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: no real I/O happens in this loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("nothing can happen any more")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time` starts at 0 and stands still while anything can run."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now


class VirtualClock:
    """Implements ports.Clock by a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds since the loop was made."""
        return self._loop.time()

    def wall(self) -> float:
        """Unix time."""
        return 1_000_000_000.0 + self._loop.time()
