"""Probing: how far a node is, and what its clock shows, by asking it as gossip does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import Ack, Ping

if TYPE_CHECKING:
    import random

    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links

PROBE_S = 2.0
"""For one answer."""
TIMES = 3


@dataclass(frozen=True)
class Probe:
    """What came of it: the least round trip in seconds, and how far the other clock is ahead.

    `ahead_s` is None where the node tells no time.
    """

    rtt_s: float
    ahead_s: float | None


class Prober:
    """Asks nodes over links. It tells none of them our own time, which may be wrong."""

    def __init__(self, links: Links, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._waiting: dict[tuple[Link, int], asyncio.Future[Ack]] = {}
        links.handle(Ack, self._on_ack)

    async def probe(self, link: Link, times: int = TIMES) -> Probe | None:
        """Ask so many times, one after the other; None where no answer came.

        Over a link nothing gets lost: who once does not answer in time is asked no more.

        Raises:
            ChannelClosed: the link ended.
        """
        best: Probe | None = None
        for _ in range(times):
            found = await self._once(link)
            if found is None:
                break
            if best is None or found.rtt_s < best.rtt_s:
                best = found
        return best

    async def _once(self, link: Link) -> Probe | None:
        key = (link, self._rng.getrandbits(32))
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        began = self._clock.monotonic()
        try:
            await link.send(Ping(key[1]))
            async with asyncio.timeout(PROBE_S):
                ack = await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[key]
        rtt = self._clock.monotonic() - began
        # The other clock was read half a round trip ago.
        ahead = ack.clock / 1000 + rtt / 2 - self._clock.wall() if ack.clock else None
        return Probe(rtt, ahead)

    async def _on_ack(self, link: Link, message: Ack, _body: memoryview) -> None:
        answer = self._waiting.get((link, message.nonce))
        if answer is not None and not answer.done():
            answer.set_result(message)
