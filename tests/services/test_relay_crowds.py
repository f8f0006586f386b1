"""Many ids from one place: others still get circuits and reservations of a relay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.codec import encode
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import RelayRefused, Reserve, Reserved
from tests.services.relaying import End, Relaying, ended, heard

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.ports import Channel

EVIL, EVIL_6 = "198.51.100.7:{}", "[2001:db8:0:1::{:x}]:9440"
GOOD = "203.0.113.{}:9440"


class Away(End):
    """A node that the sentinel sees at an address of the internet."""

    def __init__(self, relaying: Relaying, number: int, place: str) -> None:
        super().__init__(relaying, number)
        self.place = place.format(number)

    async def dial(self) -> Channel:
        channel = await super().dial()
        channel._other.remote_address = self.place
        for link in self.relaying.sentinel.links.linked().get(self.id, ()):
            link.remote_address = self.place
        return channel


async def reserved(relaying: Relaying, number: int, place: str = GOOD) -> Away:
    end = Away(relaying, number, place)
    await end.reserve()
    return end


async def test_circuits_of_a_crowd_end_for_those_of_others(stack: AsyncExitStack) -> None:
    limits = RelayLimits(circuits_per_target=8, circuits_per_source=4, join_s=60.0)
    relaying = await Relaying(stack, limits).start()
    target = await reserved(relaying, 100)
    for place in (EVIL, EVIL_6):
        crowd = [Away(relaying, 1 + n // 4, place) for n in range(8)]
        held = [await relaying.circuit(one, target) for one in crowd]
        near, far = await relaying.circuit(Away(relaying, 50, GOOD), target)
        async with asyncio.timeout(5):
            assert await ended(held[0][0])
            assert await ended(held[0][1])
        await near.send(b"question")
        assert await far.receive() == b"question"
        assert relaying.relay.figures().circuits == 8
        for halves in (*held[1:], (near, far)):
            await asyncio.gather(*(half.close() for half in halves))
        await relaying.idle()


async def test_reservations_of_a_crowd_end_for_those_of_others(stack: AsyncExitStack) -> None:
    relaying = await Relaying(stack, RelayLimits(reservations=8)).start()
    crowd = [await reserved(relaying, number, EVIL) for number in range(1, 9)]
    honest = Away(relaying, 50, GOOD)
    assert isinstance(await honest.reserve(), Reserved)
    told = await heard(crowd[-1].control)
    assert isinstance(told, RelayRefused)
    assert told.problem == "busy"
    await crowd[-1].control.send(encode(Reserve()))
    assert isinstance(await heard(crowd[-1].control), RelayRefused)
    await relaying.circuit(Away(relaying, 51, GOOD), honest)
