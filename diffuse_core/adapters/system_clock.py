"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Implements ports.Clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time in seconds."""
        return time.time()
