"""A real TCP relay between two nodes that may change what it carries, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.adapters.websocket_transport.meeting import BOB, alice, plain_listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    import pytest

    from diffuse_core.adapters.websocket_transport.channel import WebSocketChannel
    from diffuse_core.adapters.websocket_transport.listener import WebSocketListener

    Edit = Callable[[int, int, bytes], bytes]
    """Given direction (0 there, 1 back), offset and data: what goes on. May raise Cut."""

FRAMES = (b"a secret prompt", b"a hidden state")
WITHIN = 1.0
"""What a dial and an answer may take before it counts as lost."""
PACKAGE = "diffuse_core.adapters.websocket_transport"


class Cut(Exception):  # noqa: N818 - what happens to the wire
    """The wire ends after these bytes."""

    def __init__(self, last: bytes) -> None:
        super().__init__()
        self.last = last


def untouched(_direction: int, _at: int, data: bytes) -> bytes:
    return data


def flip(direction: int, offset: int) -> Edit:
    """Flips one bit of the byte at `offset`."""

    def edit(way: int, at: int, data: bytes) -> bytes:
        if way != direction or not at <= offset < at + len(data):
            return data
        changed = bytearray(data)
        changed[offset - at] ^= 1 << offset * 5 % 8
        return bytes(changed)

    return edit


def cut(direction: int, offset: int) -> Edit:
    """Ends both directions once `offset` bytes of one have passed."""

    def edit(way: int, at: int, data: bytes) -> bytes:
        if way != direction or at + len(data) <= offset:
            return data
        raise Cut(data[: offset - at])

    return edit


@contextlib.asynccontextmanager
async def relay(address: str, edit: Edit) -> AsyncIterator[str]:
    """The address of a relay to `address`."""
    host, _, port = address.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))

        async def pump(way: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            at = 0
            while data := await source.read(65536):
                try:
                    sink.write(edit(way, at, data))
                except Cut as end:
                    sink.write(end.last)
                    break
                at += len(data)
            sink.close()

        # One end that goes takes the other with it: nothing of a cut talk hangs on.
        ends = [
            asyncio.create_task(pump(0, reader, far_writer)),
            asyncio.create_task(pump(1, far_reader, writer)),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in (far_writer, writer):
            each.close()
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)

    async with plain_listener(carry) as relayed:
        yield relayed


@dataclass
class Talk:
    """What both ends of one talk got, and how it ended for them."""

    there: list[bytes] = field(default_factory=list)
    back: list[bytes] = field(default_factory=list)
    near_end: str = ""
    far_end: str = ""

    @property
    def whole(self) -> bool:
        """Everything arrived, and the end was an orderly one."""
        return (
            (self.there, self.back) == ([*FRAMES], [*FRAMES])
            and not self.near_end
            and self.far_end.endswith("closed the channel")
        )

    @property
    def harmless(self) -> bool:
        """Nothing arrived but the beginning of what was sent."""
        return all(got == list(FRAMES[: len(got)]) for got in (self.there, self.back))


class Meeting:
    """Bob's listener, and Alice who talks to him through relays, once at a time."""

    def __init__(self) -> None:
        self._talk = Talk()
        self._alice = alice()
        self.listener: WebSocketListener | None = None

    async def __aenter__(self) -> Meeting:
        self.listener = await WebSocketTransport(BOB, "net").listen("127.0.0.1", 0, self._echo)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()

    async def talk(self, edit: Edit) -> Talk:
        """Dial, send each frame and wait for its echo, and hang up."""
        self._talk = talk = Talk()
        async with relay(self.listener.address, edit) as address:
            try:
                await self._speak(address, talk)
            except (Unreachable, ChannelClosed, TimeoutError) as error:
                talk.near_end = str(error) or "no answer"
            # Whatever came, the listener is rid of it within the time that it gives strangers.
            async with asyncio.timeout(5):
                while self.listener._tasks or self.listener._gate.strangers:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        return talk

    async def _speak(self, address: str, talk: Talk) -> None:
        channel = await self._alice.dial(address, BOB.node, WITHIN)
        try:
            for frame in FRAMES:
                async with asyncio.timeout(WITHIN):
                    await channel.send(frame)
                    talk.back.append(await channel.receive())
        finally:
            await channel.close()

    async def _echo(self, channel: WebSocketChannel) -> None:
        talk = self._talk
        try:
            while True:
                frame = await channel.receive()
                talk.there.append(frame)
                await channel.send(frame)
        except ChannelClosed as error:
            talk.far_end = str(error)


async def talks(edits: Iterable[Edit], at_once: int = 8) -> list[Talk]:
    """One talk for each edit, in their order."""
    waiting = list(enumerate(edits))[::-1]
    done: dict[int, Talk] = {}

    async def work() -> None:
        async with Meeting() as meeting:
            while waiting:
                number, edit = waiting.pop()
                done[number] = await meeting.talk(edit)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return [done[number] for number in sorted(done)]


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits for an end that does not come be short."""
    for module in ("channel", "sealed_channel", "listener", "transport"):
        monkeypatch.setattr(f"{PACKAGE}.{module}.CLOSE_S", 0.05)
    for module in ("listener", "transport"):
        options = {**_options(module), "close_timeout": 0.05}
        monkeypatch.setattr(f"{PACKAGE}.{module}.OPTIONS", options)
    monkeypatch.setattr(f"{PACKAGE}.listener.OPEN_S", WITHIN)


def _options(module: str) -> dict[str, object]:
    return __import__(f"{PACKAGE}.{module}", fromlist=["OPTIONS"]).OPTIONS


async def sizes() -> tuple[int, int]:
    """How many bytes go there and back in a talk that nobody disturbs."""
    seen = [0, 0]

    def count(way: int, at: int, data: bytes) -> bytes:
        seen[way] = max(seen[way], at + len(data))
        return data

    (talk,) = await talks([count], at_once=1)
    assert talk.whole, talk
    return seen[0], seen[1]


@contextlib.asynccontextmanager
async def nothing_unhandled() -> AsyncIterator[None]:
    """No task ends with an exception that nobody takes, and none is left."""
    problems: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    yield
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    loop.set_exception_handler(None)
    assert not problems
