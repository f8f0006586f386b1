"""Dialling several places, of which one is enough."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.services.race import race

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.services.links import Link, Links


@dataclass(frozen=True)
class Place:
    """An address, and who must answer there when that is known."""

    address: str
    node: NodeId | None = None


async def dial_any(
    links: Links, places: Iterable[Place], problems: list[str]
) -> AsyncGenerator[Link, None]:
    """Links to those of `places` that answer, as they come, until the caller has enough.

    Dialled as in `race`. To be closed by the caller, which gives up the dials that are not done.

    Args:
        links: opens them.
        places: where to dial, the likeliest first.
        problems: gets a sentence for each that failed.
    """
    dials = [partial(links.dial, place.address, place.node) for place in places]
    async with aclosing(race(dials, lambda error: problems.append(str(error)))) as made:
        async for link in made:
            yield link
