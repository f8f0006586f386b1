"""What sealing a channel costs: per message, per round trip, per handshake, and through a relay.

    python tests/bench/channel.py [--rounds 15] [--seconds 0.2]

Run by hand on a quiet machine. All ends are in one process and one event loop, so that every
figure is what both ends take together, one after the other; on two machines, or two cores, a
round trip costs less. The ways take turns and the medians of the turns are printed, so that a
machine that drifts drifts for all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import secrets
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.adapters.websocket_transport.connection import OPTIONS, SUBPROTOCOL, tune
from diffuse_core.domain.channel import Credentials, Handshake
from diffuse_core.domain.identity import Identity
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from diffuse_core.ports import Channel

HIDDEN_STATE = 1152 + 60
"""Bytes of one hidden state of the demo model in bf16, and of the message around it."""
MESSAGE = 16 * 2**10
TIMEOUT = 10.0

ALICE, BOB, SENTINEL = (Identity(secrets.token_bytes(32)) for _ in range(3))


def handshake(dialler: Credentials, listener: Credentials) -> tuple[Handshake, Handshake]:
    """Both sides of a handshake that is done."""
    a = Handshake(dialler, "dialler", secrets.token_bytes(32), listener.node)
    b = Handshake(listener, "listener", secrets.token_bytes(32))
    third = a.receive(b.receive(a.start() or b"") or b"")
    b.receive(third or b"")
    return a, b


def both_credentials() -> tuple[Credentials, Credentials]:
    """Of Alice and Bob."""
    return (
        Credentials(ALICE, "bench", secrets.token_bytes(32)),
        Credentials(BOB, "bench", secrets.token_bytes(32)),
    )


def seal_us(seconds: float) -> float:
    """µs of CPU to seal a message and to open it."""
    near, far = (side.session() for side in handshake(*both_credentials()))
    frame = secrets.token_bytes(MESSAGE)
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for _ in range(50):
            far.open(near.seal(frame, 0.0))
        count += 50
    return (time.process_time() - start) / count * 1e6


def handshakes_per_s(seconds: float) -> float:
    """Of the state machines alone, both sides."""
    sides = both_credentials()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        handshake(*sides)
        count += 1
    return count / (time.perf_counter() - start)


async def dials_per_s(transport: WebSocketTransport, address: str, seconds: float) -> float:
    """Whole dials over TCP, one after the other; hanging up is not counted."""
    count, spent = 0, 0.0
    while spent < seconds:
        start = time.perf_counter()
        channel = await transport.dial(address, BOB.node, TIMEOUT)
        spent += time.perf_counter() - start
        count += 1
        await channel.close()
    return count / spent


async def trip_us(trip: Callable[[bytes], Awaitable[bytes]], size: int, seconds: float) -> float:
    """µs of one round trip of `size` bytes there and back, on average."""
    frame = secrets.token_bytes(size)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            await trip(frame)
        count += 20
    return (time.perf_counter() - start) / count * 1e6


def trip_over(channel: Channel) -> Callable[[bytes], Awaitable[bytes]]:
    """A round trip over a channel whose other end echoes."""

    async def trip(frame: bytes) -> bytes:
        await channel.send(frame)
        return await channel.receive()

    return trip


async def echo(channel: Channel) -> None:
    """Send back what comes."""
    with contextlib.suppress(ChannelClosed):
        while True:
            await channel.send(await channel.receive())


@contextlib.asynccontextmanager
async def listening(
    identity: Identity, accept: Callable[[Channel], Awaitable[None]]
) -> AsyncIterator[str]:
    """The address of a node of the network."""
    listener = await WebSocketTransport(identity, "bench").listen("127.0.0.1", 0, accept)
    yield listener.address
    await listener.close()


@contextlib.asynccontextmanager
async def plain() -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """A round trip over the same WebSocket with nothing sealed."""

    async def echo_plain(connection: object) -> None:
        tune(connection)
        async for message in connection:
            await connection.send(message)

    options = {**OPTIONS, "subprotocols": [SUBPROTOCOL]}
    async with serve(echo_plain, "127.0.0.1", 0, **options) as server:
        host, port = server.sockets[0].getsockname()
        async with connect(f"ws://{host}:{port}/", **options) as connection:
            tune(connection)

            async def trip(frame: bytes) -> bytes:
                await connection.send(frame)
                return await connection.recv(decode=False)

            yield trip


@contextlib.asynccontextmanager
async def circuit() -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """A round trip through a sentinel that splices two channels, with its paces."""
    from diffuse_core.domain.relay import RelayLimits
    from diffuse_core.services.circuits import CircuitCarrier
    from diffuse_core.services.splice import Pace, splice

    halves: asyncio.Queue[Channel] = asyncio.Queue()
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def keep(channel: Channel) -> None:
        halves.put_nowait(channel)
        await asyncio.shield(over)

    fast = RelayLimits(node_bytes_per_s=1e12, total_bytes_per_s=1e12)
    toll = Pace(fast, SystemClock()).toll(ALICE.node, BOB.node)
    ends = [WebSocketTransport(identity, "bench") for identity in (ALICE, BOB)]
    async with listening(SENTINEL, keep) as address:
        carriers = [
            CircuitCarrier(await end.dial(address, SENTINEL.node, TIMEOUT)) for end in ends
        ]
        one, other = await halves.get(), await halves.get()
        first = asyncio.create_task(one.receive())
        splicing = asyncio.create_task(splice(one, other, toll, over, first=first, stalled_s=10))
        near, far = await asyncio.gather(
            ends[0].secure(carriers[0], BOB.node, TIMEOUT, dialled=True),
            ends[1].secure(carriers[1], ALICE.node, TIMEOUT, dialled=False),
        )
        echoing = asyncio.create_task(echo(far))
        yield trip_over(near)
        await near.close()
        await echoing
        await far.close()
        over.set_result(None)
        await splicing


async def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """All figures, in turns; the first turn warms up."""
    found: dict[str, list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        alice = WebSocketTransport(ALICE, "bench")
        address = await stack.enter_async_context(listening(BOB, echo))
        channel = await alice.dial(address, BOB.node, TIMEOUT)
        stack.push_async_callback(channel.close)
        trips = {
            "plain": await stack.enter_async_context(plain()),
            "sealed": trip_over(channel),
            "relayed": await stack.enter_async_context(circuit()),
        }
        for number in range(rounds + 1):
            figures = {"seal": seal_us(seconds), "handshakes": handshakes_per_s(seconds)}
            for way, trip in trips.items():
                figures[way] = await trip_us(trip, HIDDEN_STATE, seconds)
                figures[f"{way} 16k"] = await trip_us(trip, MESSAGE, seconds)
            figures["added"] = figures["sealed"] - figures["plain"]
            figures["dials"] = await dials_per_s(alice, address, seconds)
            if number:
                for name, value in figures.items():
                    found.setdefault(name, []).append(value)
    return found


ROWS = (
    ("seal", "µs CPU, 16 KiB sealed and opened", "at most 60"),
    ("plain", "µs, round trip of 1.2 KB, not sealed", ""),
    ("sealed", "µs, the same over a channel", ""),
    ("added", "µs, what sealing adds (median of differences)", "at most 200"),
    ("plain 16k", "µs, round trip of 16 KiB, not sealed", ""),
    ("sealed 16k", "µs, the same over a channel", ""),
    ("handshakes", "handshakes/s, both state machines", "at least 200"),
    ("dials", "whole dials/s over TCP, both ends", "at least 200"),
    ("relayed", "µs, round trip of 1.2 KB through a sentinel", ""),
    ("relayed 16k", "µs, round trip of 16 KiB through a sentinel", ""),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2)
    given = parser.parse_args()
    found = asyncio.run(measure(given.rounds, given.seconds))
    print(
        f"one process, one event loop, {given.rounds} turns of {given.seconds:g} s each, "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for name, what, goal in ROWS:
        values = found[name]
        spread = f"({min(values):.0f}-{max(values):.0f})"
        print(f"{statistics.median(values):9.1f} {spread:<14} {what:<48} {goal}")


if __name__ == "__main__":
    main()
