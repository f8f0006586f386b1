"""The keys of an open channel age by the clock of the loop, and by the count of its messages."""

from __future__ import annotations

import asyncio

from diffuse_core.domain.sealed_stream import REKEY_MESSAGES, REKEY_S
from tests.adapters.websocket_transport.meeting import BOB, TIMEOUT, alice, listening


def test_after_how_many_messages_and_how_long_keys_are_replaced() -> None:
    # What the README says, and what both ends must agree on.
    assert REKEY_MESSAGES == 2**16
    assert REKEY_S == 3600.0


async def test_a_channel_that_is_open_for_an_hour_gets_another_key() -> None:
    async with listening() as listener:
        channel = await alice().dial(listener.address, BOB.node, TIMEOUT)
        first = channel._stream._sending._key
        await channel.send(b"now")
        assert await channel.receive() == b"now"
        assert channel._stream._sending._key == first
        time = asyncio.get_running_loop().time
        channel._now = lambda: time() + REKEY_S
        await channel.send(b"an hour later")
        assert await channel.receive() == b"an hour later"
        assert channel._stream._sending._key != first
        await channel.close()
