"""A TCP proxy in front of nodes: shapes, counts, cuts and swallows what is said between them.

Each node has one port here, which it names as its `--public-addr`: whoever dials it passes. Who
dials is found out by the source port, which belongs to the process of a node that was named, or
else to the client (Linux: /proc). So stages and clients meet the same address, and the links
between them differ. A connection belongs to the pair of its ends, whoever dialled.

Delays may come out up to 1 ms too long, which is the grain of asyncio's timers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from diffuse_core.listening import stop_listening
from tests.bench.link_shape import FREE, Line, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = "127.0.0.1"
CLIENT = "client"
"""Whoever is no node that was named."""
ANYBODY = "*"
WINDOW = 4 * 2**20
"""Bytes that may be under way in one direction; the sender waits then, as with TCP."""

State = Literal["up", "cut", "swallowed"]


def owner_of(port: int, processes: dict[str, int]) -> str:
    """The name of the process that has an IPv4 TCP socket at this local port; else CLIENT."""
    wanted = f":{port:04X}"
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = (line.split() for line in table)
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted) and row[9] != "0"}
    for name, process in processes.items():
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(entry.readlink()) in sockets:
                        return name
    return CLIENT


class Way:
    """One direction of a connection: bytes wait here until they arrive."""

    def __init__(self, pair: Pair, line: Line, count: Callable[[int], None]) -> None:
        self._pair = pair
        self._line = line
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._blocked = False
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None

    def feed(self, data: bytes) -> None:
        """Bytes, or the end when there are none."""
        self._count(len(data))
        self._ended = self._ended or not data
        arrival = self._line.arrival(self._loop.time(), len(data), self._pair.shape)
        self._waiting.append((arrival, data))
        self._bytes += len(data)
        if self._bytes >= WINDOW and self.source is not None:
            self.source.pause_reading()
        self.deliver()

    def block(self, *, blocked: bool) -> None:
        """The receiver reads no more, or again."""
        self._blocked = blocked
        self.deliver()

    def deliver(self) -> None:
        """Hand over what has arrived, and come again when the next piece has."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._may_pass():
            arrival, data = self._waiting[0]
            if arrival > self._loop.time():
                self._timer = self._loop.call_at(arrival, self.deliver)
                return
            self._waiting.popleft()
            self._hand_over(data)

    def _may_pass(self) -> bool:
        return self.sink is not None and not self._blocked and self._pair.state == "up"

    def _hand_over(self, data: bytes) -> None:
        assert self.sink is not None
        if not data:
            self.sink.close()
            return
        self.sink.write(data)
        self._bytes -= len(data)
        if self._bytes < WINDOW and self.source is not None and not self.source.is_closing():
            self.source.resume_reading()

    def stop(self) -> None:
        """Forget all."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()


class Pair:
    """Two nodes, and how the link between them is."""

    def __init__(self, shape: Shape, state: State) -> None:
        self.shape = shape
        self.state = state


class End(asyncio.Protocol):
    """One end of a connection: what comes in goes `out`; `into` is the other direction."""

    def __init__(self, out: Way, into: Way, lost: Callable[[], None]) -> None:
        self._out = out
        self._into = into
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out.source = self._into.sink = cast("asyncio.Transport", transport)
        self._into.deliver()

    def data_received(self, data: bytes) -> None:
        self._out.feed(data)

    def pause_writing(self) -> None:
        self._into.block(blocked=True)

    def resume_writing(self) -> None:
        self._into.block(blocked=False)

    def connection_lost(self, _error: Exception | None) -> None:
        self._into.stop()
        self._into.sink = None
        self._out.source = None
        self._out.feed(b"")
        self._lost()


class Connection:
    """Somebody's connection to a node."""

    def __init__(
        self, pair: Pair, there: Way, back: Way, port: int, done: Callable[[Connection], None]
    ) -> None:
        self.pair = pair
        self._ways = (there, back)
        self._port = port
        self._done = done
        self._open = 1
        self.dial: asyncio.Task[None] | None = None
        self.near = End(there, back, self._lost)

    def start(self) -> None:
        """Dial the node, unless the way to it is swallowed."""
        if self.pair.state == "up" and self.dial is None:
            self.dial = asyncio.create_task(self._dial())

    async def _dial(self) -> None:
        there, back = self._ways
        loop = asyncio.get_running_loop()
        try:
            self._open += 1
            await loop.create_connection(lambda: End(back, there, self._lost), PLACE, self._port)
        except OSError:
            self._open -= 1
            self.abort()

    def _lost(self) -> None:
        self._open -= 1
        if not self._open:
            self._done(self)

    def changed(self) -> None:
        """The link's state or shape did."""
        if self.pair.state == "cut":
            self.abort()
            return
        self.start()
        for way in self._ways:
            way.deliver()

    def abort(self) -> None:
        """End both sides at once."""
        for way in self._ways:
            way.stop()
            for transport in (way.source, way.sink):
                if transport is not None:
                    transport.abort()


class LinkProxy:
    """All of it; `close` when done. Names of nodes are the caller's; CLIENT is everybody else."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._servers: dict[str, asyncio.Server] = {}
        self._targets: dict[str, int] = {}
        self._processes: dict[str, int] = {}
        self._pairs: dict[frozenset[str], Pair] = {}
        self._shapes: list[tuple[frozenset[str], Shape]] = []
        self._states: dict[frozenset[str], State] = {}
        self._connections: set[Connection] = set()
        self._numbers: Counter[frozenset[str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    async def open(self, name: str) -> int:
        """A port for a node that will be there."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Door(self, name), PLACE, 0)
        self._servers[name] = server
        return int(server.sockets[0].getsockname()[1])

    def lead(self, name: str, port: int, process: int) -> None:
        """A node listens there, as this process."""
        self._targets[name] = port
        self._processes[name] = process

    def shape(self, one: str, other: str, shape: Shape) -> None:
        """Shape links between two; ANYBODY is every node and client. The last call counts."""
        self._shapes.append((frozenset((one, other)), shape))
        for ends, pair in self._pairs.items():
            pair.shape = self._shape_of(ends)

    def set_state(self, one: str, other: str, state: State) -> None:
        """Cut links (they end, and are refused), swallow what they carry, or mend them."""
        self._states[frozenset((one, other))] = state
        for ends, pair in self._pairs.items():
            pair.state = self._state_of(ends)
        for connection in list(self._connections):
            connection.changed()

    def counts(self) -> dict[str, int]:
        """Bytes that came from one to another so far, by `from>to`; of TCP's stream."""
        return {f"{a}>{b}": count for (a, b), count in self.bytes.items()}

    async def close(self) -> None:
        """End everything."""
        for server in self._servers.values():
            await stop_listening(server)
        dials = [one.dial for one in self._connections if one.dial is not None]
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*dials, return_exceptions=True)

    def _shape_of(self, ends: frozenset[str]) -> Shape:
        found = [shape for rule, shape in self._shapes if _matches(rule, ends)]
        return found[-1] if found else FREE

    def _state_of(self, ends: frozenset[str]) -> State:
        found = {state for rule, state in self._states.items() if _matches(rule, ends)}
        return "cut" if "cut" in found else "swallowed" if "swallowed" in found else "up"

    def accept(self, name: str, dialler: int) -> Connection | None:
        """Somebody dialled a node's port from this one."""
        if name not in self._targets:
            return None
        who = owner_of(dialler, self._processes)
        ends = frozenset((who, name))
        pair = self._pairs.setdefault(ends, Pair(self._shape_of(ends), self._state_of(ends)))
        if pair.state == "cut":
            return None
        self._numbers[ends] += 1
        tag = f"{self._seed} {sorted(ends)} {self._numbers[ends]}"
        lines = [Line(f"{tag} {way}") for way in ("there", "back")]
        lines[0].hold_until(asyncio.get_running_loop().time() + 2 * pair.shape.delay_s)
        there = Way(pair, lines[0], lambda size: self.bytes.update({(who, name): size}))
        back = Way(pair, lines[1], lambda size: self.bytes.update({(name, who): size}))
        made = Connection(pair, there, back, self._targets[name], self._connections.discard)
        self._connections.add(made)
        return made


def _matches(rule: frozenset[str], ends: frozenset[str]) -> bool:
    """A rule of one name and ANYBODY is for all links of that one."""
    return rule == ends or (ANYBODY in rule and rule - {ANYBODY} <= ends)


class _Door(asyncio.Protocol):
    """A connection that came in; becomes that of its `Connection` at once."""

    def __init__(self, proxy: LinkProxy, name: str) -> None:
        self._proxy = proxy
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        made = self._proxy.accept(self._name, stream.get_extra_info("peername")[1])
        if made is None:
            stream.abort()
            return
        stream.set_protocol(made.near)
        made.near.connection_made(stream)
        made.start()
