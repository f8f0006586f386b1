"""What a sentinel's relay takes from whom: direct links only, and at its pace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import JoinCircuit, OpenCircuit, RelayRefused, Reserve
from diffuse_core.services.loopback import loopback
from tests.services.relaying import Relaying

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.messages import AnyMessage

OTHER = Identity(b"o" * 32).node
FAR = Identity(b"f" * 32).node


@pytest.mark.parametrize(
    "message",
    [Reserve(), OpenCircuit(OTHER), JoinCircuit(b"j" * 16)],
    ids=lambda m: type(m).__name__,
)
async def test_nothing_is_relayed_for_who_comes_through_a_relay(
    stack: AsyncExitStack, message: AnyMessage
) -> None:
    at = await Relaying(stack).start()
    near, far = loopback(FAR)
    far.relayed_through = OTHER
    serving = asyncio.create_task(at.sentinel.links.accept(far))
    await near.send(encode(message))
    answer: AnyMessage | None = None
    async with asyncio.timeout(10):
        while not isinstance(answer, RelayRefused):
            answer, _ = decode(await near.receive())
    assert "direct" in answer.detail or "own" in answer.detail
    figures = at.relay.figures()
    assert (figures.reservations, figures.circuits) == (0, 0)
    assert at.relay.refused == {"limit": 1}
    await near.close()
    await serving


async def test_what_passes_is_paced(stack: AsyncExitStack) -> None:
    slow = RelayLimits(node_bytes_per_s=1.0, total_bytes_per_s=1.0)
    at = await Relaying(stack, slow).start()
    near, far = await at.circuit(at.end(1), await at.reserved(2))

    async def pass_all() -> None:
        for _ in range(64):
            await near.send(bytes(4096))
            await far.receive()

    passing = asyncio.create_task(pass_all())
    # At a byte a second this takes days; unpaced it is done at once.
    done, _ = await asyncio.wait([passing], timeout=0.2)
    assert not done
    passing.cancel()
    await asyncio.gather(passing, return_exceptions=True)
