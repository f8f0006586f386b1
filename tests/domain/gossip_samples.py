"""A gossip state machine with company, and how to look into it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from domain_samples import identity, node, record, signed

from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import GossipMessage, Push
from diffuse_core.domain.records import Record, first_sequence, open_record

ME = node(0)
BOOT = first_sequence(1000)
STRANGER = node(999)


def make_gossip(*others: int, **changes: Any) -> Gossip:
    """Node 0, published, knowing `others` by records of sequence 1; nothing left to send."""
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)
    gossip.set_record(record(0, **changes), 0.0)
    for number in others:
        gossip.receive(node(number), Push((signed(number),)), 0.0)
    gossip.drain()
    gossip.drain_events()
    return gossip


def drained(gossip: Gossip) -> list[tuple[NodeId, Any]]:
    """What is to be sent, with every sender's clock taken out."""
    return [
        (to, msgspec.structs.replace(one, clock=0) if hasattr(one, "clock") else one)
        for to, one in gossip.drain()
    ]


def sent(gossip: Gossip, kind: type[GossipMessage]) -> list[tuple[NodeId, Any]]:
    return [(to, message) for to, message in drained(gossip) if isinstance(message, kind)]


def liveness(gossip: Gossip, now: float = 0.0) -> dict[NodeId, str]:
    return {NodeId(one.record.node): one.liveness for one in gossip.members(now)}


def texts(gossip: Gossip) -> list[str]:
    return [text for _, text in gossip.drain_events()]


def silence(gossip: Gossip, start: float, end: float) -> None:
    now = start
    while (now := max(now, gossip.next_deadline())) <= end:
        gossip.tick(now)
        gossip.drain()
        now += 1e-6


def own_record(gossip: Gossip) -> Record:
    return next(one.record for one in gossip.members(0.0) if one.record.node == ME)


def opened(pushes: list[tuple[NodeId, Push]]) -> list[Record]:
    records = [open_record(one) for _, push in pushes for one in push.records]
    return [one for one in records if one is not None]
