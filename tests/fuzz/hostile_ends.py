"""Channels of hostile nodes to a service under test, spoken to by the steps of a script."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.codec import decode, framed
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.relay_messages import CircuitOffered
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.fuzz.script import steps
from tests.fuzz.stage import settle

if TYPE_CHECKING:
    from diffuse_core.adapters.memory_transport import MemoryChannel, MemoryNetwork
    from diffuse_core.domain.messages import AnyMessage

MAX_ENDS = 12
KINDS = 8
NODES = tuple(NodeId(bytes([number]) * 32) for number in range(1, 9))
CIRCUIT = b"the last offered"
"""Stands in what is sent for the id of the circuit that was offered last."""
_PUBLIC = "192.88.99.{}:50000"
_FULL = 60


class Step(IntEnum):
    """What a hostile node does next; the rest of the number says on which channel."""

    DIAL = 0
    MESSAGE = 1
    FRAME = 2
    CLOSE = 3
    BREAK = 4
    STALL = 5
    WAIT = 6
    FLOOD = 7


def said(step: Step, which: int = 0, argument: bytes = b"") -> tuple[int, bytes]:
    """A step on the channel of that number, for a script."""
    return step + KINDS * which, argument


def message_on(which: int, message: AnyMessage) -> tuple[int, bytes]:
    """The step that sends `message` on that channel."""
    return said(Step.MESSAGE, which, msgspec.msgpack.encode(message))


def wait_for(seconds: float) -> tuple[int, bytes]:
    """The step that lets time pass."""
    return said(Step.WAIT, 0, int(seconds * 100).to_bytes(2, "little"))


class HostileEnds:
    """Up to MAX_ENDS channels; who dials is the number of the step. All is read at once, but of
    those that stall.
    """

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network = network
        self._address = address
        self._ends: list[MemoryChannel] = []
        self._stalled: set[int] = set()
        self._offered = CIRCUIT
        self.heard = 0
        self.kinds: set[str] = set()

    def join(self, channel: MemoryChannel) -> None:
        """Speak on a channel that the service dialled, too."""
        if len(self._ends) < MAX_ENDS:
            self._ends.append(channel)

    async def play(self, data: bytes) -> None:
        """Run a script."""
        for number, argument in steps(data):
            await self._take(Step(number % KINDS), number // KINDS, argument)
            await settle()
            await self._read()

    async def _take(self, step: Step, which: int, argument: bytes) -> None:
        if step is Step.DIAL:
            self._dial(NODES[which % len(NODES)])
        elif step is Step.WAIT:
            await settle(int.from_bytes(argument[:2], "little") / 100)
        elif self._ends:
            at = which % len(self._ends)
            await self._speak(step, at, argument.replace(CIRCUIT, self._offered))

    async def _speak(self, step: Step, at: int, argument: bytes) -> None:
        end = self._ends[at]
        if step is Step.CLOSE:
            await end.close()
        elif step is Step.BREAK:
            end.break_off()
        elif step is Step.STALL:
            self._stalled ^= {at}
        elif step is Step.FRAME:
            await self._send(end, argument)
        else:
            frame = framed(argument)
            for _ in range(_FULL if step is Step.FLOOD else 1):
                await self._send(end, frame)

    def _dial(self, node: NodeId) -> None:
        if len(self._ends) >= MAX_ENDS:
            return
        try:
            channel = self._network.connect(node, self._address, None)
        except Unreachable:
            return
        # As a sentinel sees a node of the internet.
        channel._other.remote_address = _PUBLIC.format(node[0])
        self._ends.append(channel)

    async def _send(self, end: MemoryChannel, frame: bytes) -> None:
        if len(end._other._inbox) >= _FULL:
            return
        try:
            await end.send(frame)
        except ChannelClosed:
            return

    async def _read(self) -> None:
        for at, end in enumerate(self._ends):
            while end._inbox and at not in self._stalled:
                self._hear(await end.receive())

    def _hear(self, frame: bytes) -> None:
        self.heard += 1
        try:
            message, _ = decode(frame)
        except ChannelClosed:
            # Through a circuit comes what another end sent.
            return
        self.kinds.add(type(message).__name__)
        if isinstance(message, CircuitOffered):
            self._offered = message.circuit

    async def leave(self) -> None:
        """Close all of them."""
        for end in self._ends:
            await end.close()
