"""Gossip: what hostile nodes say in the course of time to one that knows others."""

from __future__ import annotations

import math
import random
import struct
from typing import get_args

import msgspec

from diffuse_core.domain.codec import decode, encode, framed
from diffuse_core.domain.gossip import MAX_OUTBOX, Gossip
from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.messages import GossipMessage, Push
from diffuse_core.domain.records import Record, SignedRecord, first_sequence
from diffuse_core.errors import ChannelClosed
from tests.fuzz.script import script, steps
from tests.fuzz.valid_values import ValidValues

SCRIPT = True
MAX_NODES = 8
"""So that a script can fill the table."""
MESSAGE, RECORD, WAIT, UNREACHABLE, MET, PULL, LEAVE = range(7)
_KINDS = 8
_IDENTITIES = tuple(Identity(bytes([number + 40]) * 32) for number in range(12))
_OWN = _IDENTITIES[0]
_BOOT_MS = 1_000_000
_RECEIVED = get_args(GossipMessage)
_TICKS = 40


class _Talk:
    """One node and the time it is."""

    def __init__(self) -> None:
        self.now = 100.0
        self.gossip = Gossip(_OWN, random.Random(1), boot_ms=_BOOT_MS, max_nodes=MAX_NODES)
        own = Record(_OWN.node, 0, "host", "0.1", ("192.0.2.1:9440",))
        self.gossip.set_record(own, self.now)

    def take(self, kind: int, who: int, argument: bytes) -> None:
        node = _IDENTITIES[who % len(_IDENTITIES)].node
        if kind == MESSAGE:
            self.message(node, argument)
        elif kind == RECORD:
            self.record(node, argument)
        elif kind == WAIT:
            self.wait(int.from_bytes(argument[:3], "little") / 1000)
        elif kind == UNREACHABLE:
            self.gossip.unreachable(node, self.now)
        elif kind == MET:
            self.gossip.met(node, self.now)
        elif kind == PULL:
            self.gossip.pull_from(node)
        elif kind == LEAVE:
            self.gossip.leave(self.now)

    def message(self, sender: NodeId, argument: bytes) -> None:
        try:
            message, _ = decode(framed(argument))
        except ChannelClosed:
            return
        if isinstance(message, _RECEIVED):
            self.gossip.receive(sender, message, self.now)

    def record(self, sender: NodeId, argument: bytes) -> None:
        """A Push of a record that its node signed; the first byte says which of them."""
        signer = _IDENTITIES[(argument[:1] or b"\x00")[0] % len(_IDENTITIES)]
        payload = argument[1:].replace(_HERE, signer.node)
        signed = SignedRecord(payload, signer.sign("record", payload))
        self.gossip.receive(sender, Push((signed,)), self.now)

    def wait(self, seconds: float) -> None:
        """Ticks as the node's pump does; it may not spin."""
        end = self.now + seconds
        for _ in range(_TICKS):
            due = self.gossip.next_deadline()
            assert not math.isnan(due)
            if due > end:
                break
            spins = 0
            while self.gossip.next_deadline() <= max(due, self.now):
                self.gossip.tick(max(due, self.now))
                spins += 1
                assert spins < 8, "a deadline never passes"
            self.now = max(due, self.now)
        self.now = end
        self.gossip.tick(end)

    def check(self) -> None:
        assert len(self.gossip.members(self.now)) <= MAX_NODES
        outgoing = self.gossip.drain()
        assert len(outgoing) <= 2 * MAX_OUTBOX
        for to, message in outgoing:
            assert len(to) == 32
            again, _ = decode(encode(message))
            assert again == message
        for _, text in self.gossip.drain_events():
            assert text.isprintable()


_HERE = b"\x00signed by this\x00".ljust(32, b"\x00")
"""Stands for the signer's id in a payload, which no mutation could guess."""


def target(data: bytes) -> str:
    """Nothing raises, spins, or passes the bounds; all that is said can be understood."""
    talk = _Talk()
    for number, argument in steps(data):
        talk.take(number % _KINDS, number // _KINDS, argument)
        talk.check()
    refused = "/".join(sorted(talk.gossip.counts.refusals)) or "none"
    return f"{len(talk.gossip.members(talk.now))} members, refused {refused}"


def _said(kind: int, who: int, argument: bytes = b"") -> tuple[int, bytes]:
    return kind + _KINDS * who, argument


def _wait(seconds: float) -> tuple[int, bytes]:
    return _said(WAIT, 0, int(seconds * 1000).to_bytes(3, "little"))


def _own_word(who: int, sequence: int = first_sequence(_BOOT_MS), **changes: object) -> bytes:
    record = Record(NodeId(_HERE), sequence, "host", "0.1", ("192.0.2.9:9440",))
    return bytes([who]) + msgspec.msgpack.encode(msgspec.structs.replace(record, **changes))


def samples() -> dict[str, bytes]:
    """Every kind of message once, and a few conversations."""
    found = {}
    for kind in _RECEIVED:
        tag = kind.__struct_config__.tag
        values = ValidValues(random.Random(tag))
        said = [_said(RECORD, 1, _own_word(1))]
        said += [_said(MESSAGE, 1, msgspec.msgpack.encode(values.make(kind))) for _ in range(3)]
        found[tag] = script(*said, _wait(1.0))
    crowd = [_said(RECORD, who, _own_word(who)) for who in range(1, 12)]
    found["crowd"] = script(*crowd, _wait(30.0), *crowd)
    later = [_said(RECORD, 2, _own_word(2, first_sequence(_BOOT_MS) + n)) for n in range(6)]
    found["updates"] = script(*later, _said(RECORD, 3, _own_word(2, left=True)), _wait(5.0))
    gone = [_said(UNREACHABLE, 1) for _ in range(4)]
    found["dead"] = script(*crowd[:3], *gone, _wait(10.0), _said(MET, 1), _said(PULL, 1))
    found["future"] = script(_said(RECORD, 1, _own_word(1, 2**63 - 1)), _wait(2.0), *crowd[:2])
    found["twin"] = script(_said(RECORD, 1, _own_word(0)), _wait(1.0), _said(LEAVE, 0), _wait(1.0))
    found["clock"] = script(_said(MESSAGE, 1, struct.pack("B", 0xC1)), *crowd[:1], _wait(60.0))
    return found
