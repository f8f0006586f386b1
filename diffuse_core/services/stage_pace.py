"""How often a node may ask something of a Stage.

Questions, openings and changes of Route cost the event loop time that tokens of others wait for.
Who asks more than any honest node does is read more slowly: its link waits, and nobody else's.
Rows are not counted: there are windows for them, and a Client must not be able to have a node send
so many that others of its rows wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.allowances import Allowances

if TYPE_CHECKING:
    from collections.abc import Hashable

    from diffuse_core.ports import Clock

BURST = 512.0
"""Of short questions, or of others as much as they cost: 64 Sessions may be opened at once."""
PER_S = 200.0
"""A node that runs 64 Sessions here asks 64 times a second whether they live."""
OPENING = MIRROR = 4.0
CREDIT = 1 / 16
"""A Client may give it for each token, at 50 tokens a second in 64 Sessions."""
LEAST_S = 0.001
TOKENS = 1024
"""Tokens or numbers that count as a question more."""


class Pace:
    """Makes those wait that ask too often."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowed = Allowances(BURST, PER_S)

    async def turn(self, who: Hashable, cost: float = 1.0) -> None:
        """Return when `who` may ask what costs as much as so many short questions."""
        cost, clock = min(cost, BURST), self._clock
        # Several links of one node may be waiting: who wakes up first has it.
        while not self._allowed.spend(who, cost, now := clock.monotonic()):
            ready = self._allowed.ready_at(who, cost, now)
            await asyncio.sleep(max(ready - now, LEAST_S))
