"""Network keys over real sockets: who is let in, and what both ends are told."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.errors import Unreachable
from tests.adapters.websocket_transport.meeting import ALICE, BOB, TIMEOUT, echo, settled, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.adapters.websocket_transport.listener import WebSocketListener

KEY, OTHER = b"k" * 32, b"o" * 32


@contextlib.asynccontextmanager
async def listening(key: bytes | None) -> AsyncIterator[WebSocketListener]:
    listener = await WebSocketTransport(BOB, "net", key).listen("127.0.0.1", 0, echo)
    try:
        yield listener
    finally:
        await listener.close()
        await settled()


async def test_with_the_key_frames_go_both_ways() -> None:
    async with listening(KEY) as listener:
        transport = WebSocketTransport(ALICE, "net", KEY)
        channel = await transport.dial(listener.address, BOB.node, TIMEOUT)
        await channel.send(b"frame")
        assert await channel.receive() == b"frame"
        await channel.close()


@pytest.mark.parametrize(
    ("here", "there", "told", "logged"),
    [
        (None, KEY, "network with a key; give this node the same --network-key", "gave no"),
        (KEY, None, "has no network key and this node has one", "has a network key, this one"),
        (OTHER, KEY, "another network key; give both the same --network-key", "another network"),
    ],
)
async def test_both_ends_are_told_what_differs(
    here: bytes | None,
    there: bytes | None,
    told: str,
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="diffuse_core")
    async with listening(there) as listener:
        with pytest.raises(Unreachable, match=told):
            await WebSocketTransport(ALICE, "net", here).dial(listener.address, None, TIMEOUT)
        await until(lambda: logged in caplog.text)
    assert "k" * 32 not in caplog.text
