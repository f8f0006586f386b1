"""A node that cannot be dialled, real reservations, and sentinels that are hostile.

The script speaks for the sentinels on channels that the node dialled to them, and as the other
half of circuits that the node joins.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.circuit_pieces import cut
from diffuse_core.domain.codec import framed
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Ping
from diffuse_core.domain.relay_messages import CircuitOffered, CircuitReady, RelayRefused, Reserved
from diffuse_core.domain.relayed_address import parse_relayed
from diffuse_core.domain.reservations import WANTED, Candidate
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.links import Links
from diffuse_core.services.reservations import JOIN_S, MAX_JOINS, Reservations
from tests.fuzz.hostile_ends import NODES, HostileEnds, Step, message_on, said, wait_for
from tests.fuzz.script import script
from tests.fuzz.stage import play, settle

if TYPE_CHECKING:
    from diffuse_core.adapters.memory_transport import MemoryChannel
    from diffuse_core.ports import Channel
    from tests.fuzz.virtual_loop import VirtualClock

SCRIPT = True
_NODE = NodeId(bytes([201]) * 32)
_SENTINELS = NODES[:3]
_CIRCUIT = bytes(range(16))
WORDS = (*NODES, _NODE, _CIRCUIT)
_FAREWELL_S = 30.0


class _Party:
    """What reservations need of their node."""

    def __init__(self, network: MemoryNetwork, clock: VirtualClock) -> None:
        self.clock = clock
        self.transport = CircuitTransport(network.transport(_NODE), _NODE)
        self.links = Links(self.transport, _NODE)


async def _act(data: bytes, clock: VirtualClock) -> str:
    network = MemoryNetwork()
    party = _Party(network, clock)
    ends = HostileEnds(network, "nowhere:1")

    async def accept(channel: Channel) -> None:
        ends.join(cast("MemoryChannel", channel))
        # Until the node, or the script, ends it.
        await settle(1e6)

    listeners = [
        await network.transport(sentinel).listen("mem", 0, accept) for sentinel in _SENTINELS
    ]
    candidates = [
        Candidate(sentinel, (listener.address,))
        for sentinel, listener in zip(_SENTINELS, listeners, strict=True)
    ]
    reservations = Reservations(party, party.transport.base, lambda: candidates, random.Random(3))
    reservations.start()
    await settle()
    await ends.play(data)
    held = reservations.held()
    assert len(held) <= WANTED
    assert all(parse_relayed(address) for address in reservations.addresses())
    assert len(reservations._joins) <= MAX_JOINS * len(_SENTINELS)
    linked = sum(
        link.relayed_through is not None for mine in party.links.linked().values() for link in mine
    )
    await settle(JOIN_S + 1)
    assert not reservations._joins
    await reservations.close()
    await ends.leave()
    for listener in listeners:
        await listener.close()
    await party.links.close()
    await settle(_FAREWELL_S)
    return f"{len(held)} held, {linked} relayed"


def target(data: bytes) -> str:
    """Nothing fails; what the node keeps and does stays within its limits, and all ends."""
    return play(partial(_act, data))


def _pieces(which: int, wire: bytes) -> list[tuple[int, bytes]]:
    return [said(Step.FRAME, which, piece) for piece in cut(wire)]


def samples() -> dict[str, bytes]:
    """Reservations that last, are refused, run out; circuits offered and joined."""
    grant = [message_on(0, Reserved(60)), message_on(1, Reserved(30))]
    offer = message_on(0, CircuitOffered(_CIRCUIT, NODES[6]))
    joined = [*grant, offer, message_on(2, CircuitReady())]
    proven = [*joined, *_pieces(2, NODES[6])]
    ping = msgspec.msgpack.encode(Ping(1))
    frame = b"\x00" + framed(ping)
    return {
        "granted": script(*grant, wait_for(25.0), *grant, wait_for(70.0)),
        "refused": script(message_on(0, RelayRefused("busy")), wait_for(1.0), *grant),
        "taken-back": script(*grant, message_on(1, RelayRefused("gone")), wait_for(5.0), *grant),
        "joined": script(*proven, *_pieces(2, frame), *_pieces(2, b"\x01")),
        "kept": script(*proven, *_pieces(2, frame), wait_for(1.0), *_pieces(2, frame)),
        "foreign": script(*joined, *_pieces(2, NODES[5])),
        "unready": script(*grant, offer, wait_for(6.0)),
        "many": script(*grant, *[offer] * 40, wait_for(3.0), *[offer] * 4),
        "flood": script(*grant, said(Step.FLOOD, 0, offer[1]), wait_for(1.0)),
        "cut-off": script(*grant, said(Step.BREAK, 0), wait_for(2.0), said(Step.CLOSE, 1)),
        "short": script(
            message_on(0, Reserved(1)), wait_for(0.5), message_on(0, Reserved(1)), wait_for(2.0)
        ),
        "pieces": script(*proven, said(Step.FRAME, 2, b"\x00short"), wait_for(1.0)),
    }
