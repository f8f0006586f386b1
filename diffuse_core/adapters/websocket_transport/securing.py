"""Opening a channel through a Sentinel, which carries the bytes and is trusted with nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.adapters.websocket_transport.connection import (
    CLOSE_CODES,
    CLOSE_S,
    REFUSED,
    converse,
    why_refused,
)
from diffuse_core.adapters.websocket_transport.sealed_channel import SealedChannel
from diffuse_core.domain.channel import HandshakeFailed
from diffuse_core.domain.identity import short_text
from diffuse_core.errors import ChannelClosed, Unreachable

if TYPE_CHECKING:
    from diffuse_core.domain.channel import Handshake
    from diffuse_core.ports import Carrier

_CODE_BYTES = 2


async def secure(carrier: Carrier, handshake: Handshake, timeout: float) -> SealedChannel:  # noqa: ASYNC109 - as in ports.Transport.secure
    """Run the handshake over a carrier (see ports.Transport.secure)."""
    try:
        await _converse(carrier, handshake, timeout)
    except BaseException:
        await carrier.close()
        raise
    return SealedChannel(carrier, handshake.session(), handshake.remote)


async def _converse(carrier: Carrier, handshake: Handshake, within: float) -> None:
    there = _name(carrier)
    try:
        async with asyncio.timeout(within):
            await converse(handshake, carrier.send, lambda: _receive(carrier, there))
    except TimeoutError as error:
        raise Unreachable(f"{there} did not answer within {within:g} s; try again") from error
    except HandshakeFailed as error:
        await _tell_why(carrier, error)
        raise Unreachable(f"cannot use {there}: {error}") from error
    except ChannelClosed as error:
        raise Unreachable(f"{there} {why_refused(None)}") from error


def _name(carrier: Carrier) -> str:
    sentinel = carrier.relayed_through
    through = f"sentinel {short_text(sentinel)} at " if sentinel else ""
    return f"the node behind {through}{carrier.remote_address}"


async def _receive(carrier: Carrier, there: str) -> bytes:
    # No message of a handshake is that short. As a close code of a direct connection it is not
    # authenticated, and so good for the error's text and nothing else.
    message = await carrier.receive()
    if len(message) == _CODE_BYTES:
        raise Unreachable(f"{there} {why_refused(int.from_bytes(message, 'big'))}")
    return message


async def _tell_why(carrier: Carrier, failed: HandshakeFailed) -> None:
    code = CLOSE_CODES.get(failed.reason, REFUSED)
    with contextlib.suppress(TimeoutError, ChannelClosed):
        async with asyncio.timeout(CLOSE_S):
            await carrier.send(code.to_bytes(_CODE_BYTES, "big"))
