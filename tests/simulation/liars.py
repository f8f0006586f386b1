"""Liars: nodes that take part as others do, and send what no honest node would.

Each kind of lie is a method of Villain that gives one message. What is made up bears a mark, the
capacity FORGED, by which it is found again wherever it was believed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
from latencies import lie
from model_records import host_record
from simulated_node import Letter, encoder

from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.messages import MAX_PUSH, Ack, Ping, Push, Rumour
from diffuse_core.domain.records import (
    COUNTER_BITS,
    MAX_RECORD_BYTES,
    Record,
    SignedRecord,
    seal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated_network import SimulatedNetwork
    from simulated_node import SimulatedNode

FORGED = 666_000_000
DAY = 86_400_000 << COUNTER_BITS
LIE_INTERVAL_S = 1.0
LIES_EACH = 2


def own_record(node: SimulatedNode) -> tuple[SignedRecord, Record]:
    """What an honest node published last: what the simulation knows, not what another one may."""
    entry = node.gossip._roster.directory.get(node.id)
    assert entry is not None
    return entry.signed, entry.record


class MadeUp:
    """Nodes that do not exist, with keys, signatures and slices; shared by all liars."""

    def __init__(self, count: int, sequence: int) -> None:
        self.records: list[SignedRecord] = []
        self.ids: list[NodeId] = []
        for number in range(count):
            fields = host_record(number) | {"capacity": FORGED, "role": "host"}
            identity = Identity((10**9 + number).to_bytes(32, "big"))
            record = Record(node=identity.node, sequence=sequence, **fields)
            self.records.append(seal(record, identity))
            self.ids.append(identity.node)


class Villain:
    """Lies now and then to a few nodes; never to the same effect twice in a row."""

    def __init__(self, seed: int, made_up: MadeUp) -> None:
        self._rng = random.Random(seed)
        self._made_up = made_up
        self._old: list[SignedRecord] = []
        self.lies = 0

    def hears(self, net: SimulatedNetwork, node: SimulatedNode, letter: Letter) -> bool:
        """Keeps old records to replay; the honest part hears everything."""
        if letter.kind == "Push" and len(self._old) < 64:
            message = letter.read()
            assert isinstance(message, Push)
            self._old.extend(message.records[:1])
        return True

    def begin(self, net: SimulatedNetwork, node: SimulatedNode) -> None:
        """Lie from now on."""
        net.at(net.now + self._rng.uniform(0, LIE_INTERVAL_S), lambda: self._act(net, node))

    def _act(self, net: SimulatedNetwork, node: SimulatedNode) -> None:
        if not node.running:
            return
        lies: tuple[Callable[..., Any], ...] = (
            self.forged,
            self.replayed,
            self.future,
            self.oversized,
            self.flood,
            self.two_faced,
            self.deaths,
            self.deaths,
            self.acks,
        )
        for _ in range(LIES_EACH):
            victim = net.nodes[self._rng.randrange(len(net.nodes))]
            about = net.nodes[self._rng.randrange(len(net.nodes))]
            message = self._rng.choice(lies)(node, victim, about)
            if message is not None and victim is not node:
                self.lies += 1
                data = message if isinstance(message, bytes) else encoder.encode(message)
                net.post(victim.id, Letter(node, data, "Lie"))
        net.at(net.now + LIE_INTERVAL_S, lambda: self._act(net, node))

    # --- lies ------------------------------------------------------------------------------

    def forged(self, node: SimulatedNode, _: SimulatedNode, about: SimulatedNode) -> Push:
        """A later record of somebody else, signed with the wrong key."""
        record = own_record(about)[1]
        later = msgspec.structs.replace(record, sequence=record.sequence + 9, capacity=FORGED)
        return Push((seal(later, node.identity),))

    def replayed(self, *_: SimulatedNode) -> Push | None:
        """Records that were true once."""
        return Push(tuple(self._old[:MAX_PUSH])) if self._old else None

    def future(self, node: SimulatedNode, *_: SimulatedNode) -> Push:
        """Our own record, dated a day ahead."""
        record = own_record(node)[1]
        ahead = msgspec.structs.replace(record, sequence=record.sequence + DAY, capacity=FORGED)
        return Push((seal(ahead, node.identity),))

    def oversized(self, node: SimulatedNode, *_: SimulatedNode) -> bytes:
        """A payload longer than any may be."""
        return encoder.encode(
            Push((SignedRecord(b"\x00" * (MAX_RECORD_BYTES + 1), b"\x00" * 64),))
        )

    def flood(self, *_: SimulatedNode) -> Push:
        """As many nodes that do not exist as a message holds."""
        records = self._made_up.records
        start = self._rng.randrange(max(1, len(records) - MAX_PUSH))
        return Push(tuple(records[start : start + MAX_PUSH]))

    def two_faced(self, node: SimulatedNode, victim: SimulatedNode, _: SimulatedNode) -> Push:
        """Our own record under the sequence it has, but with other words for everybody."""
        record = own_record(node)[1]
        return Push(
            (seal(msgspec.structs.replace(record, capacity=victim.number), node.identity),)
        )

    def deaths(self, node: SimulatedNode, _: SimulatedNode, about: SimulatedNode) -> Push:
        """Somebody is dead, or suspect."""
        sequence = own_record(about)[1].sequence
        return Push((), (Rumour(about.id, sequence, self._rng.choice(("dead", "suspect"))),))

    def acks(self, *_: SimulatedNode) -> Ack | Ping:
        """Answers that nobody asked for."""
        return Ack(self._rng.getrandbits(32), place=lie(self._rng))
