"""Waiting for a condition in asyncio tests: turns of the loop, bounded by a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_S = 18.0  # below the time that a test has
TURN_S = 0.005


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition()` is true; fail when it is not within the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  (conditions of many kinds, no event to wait for)
            await asyncio.sleep(TURN_S)
