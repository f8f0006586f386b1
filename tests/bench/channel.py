"""What sealing a channel costs: per message, per round trip, per handshake, and through a relay.

    python tests/bench/channel.py [--rounds 15] [--seconds 0.2]

Run by hand on a quiet machine. All ends are in one process and one event loop, so that every
figure is what both ends take together, one after the other; on two machines, or two cores, a
round trip costs less. On a machine with other things to do the clock on the wall says little, and
CPU time more: both are given. The ways take turns and the medians of the turns are printed, so
that a machine that drifts drifts for all.
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


class Spent:
    """Time since it was made: on the wall and of CPU, in µs for each of `count`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def for_each(self, count: int) -> tuple[float, float]:
        """Wall and CPU."""
        wall = time.perf_counter() - self._wall
        return wall / count * 1e6, (time.process_time() - self._cpu) / count * 1e6

    def over(self, seconds: float) -> bool:
        """Whether so much CPU was used."""
        return time.process_time() - self._cpu >= seconds


def seal_us(seconds: float) -> tuple[float, float]:
    """µs to seal a message and to open it."""
    near, far = (side.session() for side in handshake(*both_credentials()))
    frame = secrets.token_bytes(MESSAGE)
    count, spent = 0, Spent()
    while not spent.over(seconds):
        for _ in range(50):
            far.open(near.seal(frame, 0.0))
        count += 50
    return spent.for_each(count)


def handshake_us(seconds: float) -> tuple[float, float]:
    """µs of the state machines alone, both sides."""
    sides = both_credentials()
    count, spent = 0, Spent()
    while not spent.over(seconds):
        handshake(*sides)
        count += 1
    return spent.for_each(count)


async def dial_us(
    transport: WebSocketTransport, address: str, seconds: float
) -> tuple[float, float]:
    """µs of whole dials over TCP, one after the other, and of hanging up."""
    count, spent = 0, Spent()
    while not spent.over(seconds):
        channel = await transport.dial(address, BOB.node, TIMEOUT)
        await channel.close()
        count += 1
    return spent.for_each(count)


async def trip_us(
    trip: Callable[[bytes], Awaitable[bytes]], size: int, seconds: float
) -> tuple[float, float]:
    """µs of one round trip of `size` bytes there and back."""
    frame = secrets.token_bytes(size)
    count, spent = 0, Spent()
    while not spent.over(seconds):
        for _ in range(20):
            await trip(frame)
        count += 20
    return spent.for_each(count)


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
        for carrier in carriers:
            carrier.trust()
        echoing = asyncio.create_task(echo(far))
        yield trip_over(near)
        await near.close()
        await echoing
        await far.close()
        over.set_result(None)
        await splicing


Figures = dict[str, list[tuple[float, float]]]


async def measure(rounds: int, seconds: float) -> Figures:
    """All figures, in turns; the first turn warms up."""
    found: Figures = {}
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
            figures = {"seal": seal_us(seconds), "handshake": handshake_us(seconds)}
            for way, trip in trips.items():
                figures[way] = await trip_us(trip, HIDDEN_STATE, seconds)
                figures[f"{way} 16k"] = await trip_us(trip, MESSAGE, seconds)
            for more in ("", " 16k"):
                both = zip(figures["sealed" + more], figures["plain" + more], strict=True)
                wall, cpu = (one - other for one, other in both)
                figures["added" + more] = wall, cpu
            figures["dial"] = await dial_us(alice, address, seconds)
            if number:
                for name, value in figures.items():
                    found.setdefault(name, []).append(value)
    return found


ROWS = (
    ("seal", "16 KiB sealed and opened", "at most 60 of CPU"),
    ("plain", "round trip of 1.2 KB, not sealed", ""),
    ("sealed", "the same over a channel", ""),
    ("added", "what sealing adds, each turn by itself", "at most 200"),
    ("plain 16k", "round trip of 16 KiB, not sealed", ""),
    ("sealed 16k", "the same over a channel", ""),
    ("added 16k", "what sealing adds", ""),
    ("handshake", "handshake, both state machines", "at most 5000 (200/s)"),
    ("dial", "whole dial over TCP and hanging up, both ends", "at most 5000 (200/s)"),
    ("relayed", "round trip of 1.2 KB through a sentinel", ""),
    ("relayed 16k", "round trip of 16 KiB through a sentinel", ""),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of CPU for each figure")
    given = parser.parse_args()
    found = asyncio.run(measure(given.rounds, given.seconds))
    print(
        f"one process, one event loop, {given.rounds} turns of {given.seconds:g} s CPU each, "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print("  µs wall    µs CPU  (least-most CPU)")
    for name, what, goal in ROWS:
        walls, cpus = zip(*found[name], strict=True)
        spread = f"({min(cpus):.0f}-{max(cpus):.0f})"
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        print(f"{wall:9.1f} {cpu:9.1f}  {spread:<12} {what:<48} {goal}")


if __name__ == "__main__":
    main()
