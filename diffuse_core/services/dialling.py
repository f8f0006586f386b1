"""Dialling several places, of which one is enough: the next is begun before the last gave up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.services.links import Link, Links

STAGGER_S = 0.25
MAX_DIALS = 8


@dataclass(frozen=True)
class Place:
    """An address, and who must answer there when that is known."""

    address: str
    node: NodeId | None = None


async def dial_any(
    links: Links, places: Iterable[Place], problems: list[str]
) -> AsyncGenerator[Link, None]:
    """Links to those of `places` that answer, as they come, until the caller has enough.

    The first place is dialled at once, each other one when those before it failed or did not
    answer within STAGGER_S (as RFC 8305 does for the addresses of one machine). To be closed by
    the caller, which gives up the dials that are not done.

    Args:
        links: opens them.
        places: where to dial, the likeliest first.
        problems: gets a sentence for each that failed.
    """
    waiting = deque(places)
    running: set[asyncio.Task[Link]] = set()
    try:
        while waiting or running:
            if waiting and len(running) < MAX_DIALS:
                place = waiting.popleft()
                work = links.dial(place.address, place.node)
                running.add(asyncio.create_task(work, name=f"dial {place.address}"))
            more = bool(waiting) and len(running) < MAX_DIALS
            done, _ = await asyncio.wait(
                running,
                timeout=STAGGER_S if more else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                running.discard(task)
                try:
                    link = task.result()
                except Unreachable as error:
                    problems.append(str(error))
                else:
                    yield link
    finally:
        for task in running:
            task.cancel()
        for outcome in await asyncio.gather(*running, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                with contextlib.suppress(Unreachable):
                    await outcome.close()
