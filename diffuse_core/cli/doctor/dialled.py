"""Dialling bootstrap addresses one by one, step by step."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.cli.doctor.network import AddressFacts
from diffuse_core.domain.channel import HandshakeFailed
from diffuse_core.domain.identity import Identity, node_text
from diffuse_core.errors import ChannelClosed, Refused, Unreachable
from diffuse_core.services.links import Links
from diffuse_core.services.probing import Prober
from diffuse_core.settings import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.settings import NetworkOptions

RESOLVE_S = 3.0
CONNECT_S = 3.0
OPEN_S = 4.0
MAX_ADDRESSES = 16
AT_ONCE = 8

# A close code tells how the other side sees it; from here it is the other way round.
_SEEN_FROM_HERE = {"keyed": "keyless", "keyless": "keyed"}


async def dial_all(addresses: Sequence[str], network: NetworkOptions) -> list[AddressFacts]:
    """How far a dial of each address comes, in their order; MAX_ADDRESSES of them at most."""
    from diffuse_core.finding import open_transport

    transport = await open_transport(Identity(os.urandom(32)), network)
    links = Links(transport, allowed=network.allowed)
    gate = asyncio.Semaphore(AT_ONCE)
    prober = Prober(links, SystemClock(), random.Random(os.urandom(8)))  # noqa: S311  (no secret)

    async def one(address: str) -> AddressFacts:
        async with gate:
            return await _dial(address, links, prober)

    try:
        return await asyncio.gather(*map(one, addresses[:MAX_ADDRESSES]))
    finally:
        await links.close()


async def _dial(address: str, links: Links, prober: Prober) -> AddressFacts:
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(RESOLVE_S):
            infos = await in_thread(
                lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
    except TimeoutError:
        return AddressFacts(address, "resolve", f"the name {host!r} was not resolved in time")
    except (OSError, UnicodeError):
        return AddressFacts(address, "resolve", f"no host is called {host!r}")
    try:
        async with asyncio.timeout(CONNECT_S):
            await _connect(infos)
    except TimeoutError:
        return AddressFacts(address, "connect", f"no answer within {CONNECT_S:g} s")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        return AddressFacts(address, "connect", f"no connection: {why.lower()}")
    return await _open(address, links, prober)


async def _connect(infos: Sequence[tuple[int, int, int, str, Any]]) -> None:
    """Whether TCP gets there at all: at one of the addresses of a name, as a node tries them.

    Raises:
        OSError: at none; it is the last one's.
    """
    loop = asyncio.get_running_loop()
    failed = OSError("it has no address")
    for family, kind, protocol, _, sockaddr in infos:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, sockaddr)
                return
        except OSError as error:
            failed = error
    raise failed


async def _open(address: str, links: Links, prober: Prober) -> AddressFacts:
    clock = SystemClock()
    began = clock.monotonic()
    try:
        link = await links.dial(address, seconds=OPEN_S)
        took = clock.monotonic() - began
        probe = await prober.probe(link)
    except (Unreachable, Refused, ChannelClosed) as error:
        return AddressFacts(address, "handshake", str(error), _reason(error))
    trip = None if probe is None else probe.rtt_s
    return AddressFacts(address, "done", "", "", node_text(link.remote), took, trip)


def _reason(error: Exception) -> str:
    """The handshake's word for what went wrong; empty where there is none."""
    from diffuse_core.adapters.websocket_transport.connection import CLOSE_CODES

    cause = error.__cause__
    if isinstance(cause, HandshakeFailed):
        return cause.reason
    received = getattr(cause, "rcvd", None)
    code = getattr(received, "code", None)
    word = next((word for word, known in CLOSE_CODES.items() if known == code), "")
    return _SEEN_FROM_HERE.get(word, word)
