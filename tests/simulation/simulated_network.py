"""A network of real gossip state machines under a virtual clock, seeded, on one thread.

Messages travel with delay and loss, encoded and decoded as on the wire. A killed node refuses
(its machine lives on) or is silent (its machine is gone); a paused one processes nothing and
finds its mail when it goes on.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import Identity, NodeId, short_text
from diffuse_core.domain.messages import AnyMessage, GossipMessage, Pull, Push, Rumour
from diffuse_core.domain.records import Record, SignedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.members import Member

BOOT_MS = 1_700_000_000_000
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


@dataclass
class SimulatedNode:
    identity: Identity
    gossip: Gossip
    running: bool = True
    refuses: bool = False
    paused_until: float = 0.0
    clock_offset: float = 0.0
    mail: list[tuple[NodeId, bytes]] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    wake_at: float = float("inf")


class SimulatedNetwork:
    """Nodes 0..n-1; times in virtual seconds."""

    def __init__(
        self, seed: int, *, loss: float = 0.0, delay: tuple[float, float] = (0.001, 0.01)
    ) -> None:
        self.rng = random.Random(seed)
        self.loss = loss
        self.delay = delay
        self.now = 0.0
        self.nodes: list[SimulatedNode] = []
        self.by_id: dict[NodeId, SimulatedNode] = {}
        self.cut: set[frozenset[NodeId]] = set()
        self.bytes_sent = 0
        self.messages_sent = 0
        self._queue: list[tuple[float, int, str, Any]] = []
        self._count = itertools.count()
        self._trace = hashlib.sha256()

    # --- building ------------------------------------------------------------------------

    def add(
        self, *, via: int | None = None, seed: int | None = None, boot_ms: int = BOOT_MS
    ) -> int:
        """Start a node, joining through node `via`; returns its number."""
        number = len(self.nodes)
        identity = Identity((seed if seed is not None else number).to_bytes(32, "big"))
        rng = random.Random(self.rng.random())
        gossip = Gossip(identity, rng, boot_ms=boot_ms)
        node = SimulatedNode(identity, gossip, clock_offset=self.rng.uniform(0, 1e6))
        self.nodes.append(node)
        self.by_id[identity.node] = node
        self.say(number)
        if via is not None:
            gossip.pull_from(self.nodes[via].identity.node)
        self._after(node)
        return number

    def say(self, number: int, **changes: Any) -> None:
        """Publish a record."""
        node = self.nodes[number]
        fields = {"node": b"\0" * 32, "sequence": 0, "role": "host", "version": "0"} | changes
        node.gossip.set_record(Record(**fields), self._local(node))
        self._after(node)

    # --- mishaps -------------------------------------------------------------------------

    def kill(self, number: int, *, silent: bool = False) -> None:
        node = self.nodes[number]
        node.running, node.refuses = False, not silent

    def pause(self, number: int, seconds: float) -> None:
        self.nodes[number].paused_until = self.now + seconds
        self._push(self.now + seconds, "resume", self.nodes[number])

    def leave(self, number: int) -> None:
        node = self.nodes[number]
        node.gossip.leave(self._local(node))
        self._after(node)
        node.running, node.refuses = False, True

    def part(self, left: set[int], right: set[int]) -> None:
        for one, other in itertools.product(left, right):
            ids = (self.nodes[one].identity.node, self.nodes[other].identity.node)
            self.cut.add(frozenset(ids))

    # --- running -------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at the virtual time `when`, between deliveries."""
        self._push(when, "act", act)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, kind, what = heapq.heappop(self._queue)
            if kind == "deliver":
                self._deliver(*what)
            elif kind == "act":
                what()
            elif kind == "unreachable":
                sender, receiver = what
                if sender.running:
                    sender.gossip.unreachable(receiver, self._local(sender))
                    self._after(sender)
            else:
                self._wake(what)
        self.now = end

    def members(self, number: int) -> tuple[Member, ...]:
        """All that a node knows, itself included."""
        node = self.nodes[number]
        return node.gossip.members(self._local(node))

    def knows(self, number: int) -> dict[str, str]:
        """What a node believes: short id to liveness."""
        return {short_text(member.record.node): member.liveness for member in self.members(number)}

    def look(self, number: int) -> tuple[list[SignedRecord], list[Rumour]]:
        """What a stranger that pulls from a node is pushed."""
        node = self.nodes[number]
        stranger = Identity(b"s" * 32).node
        node.gossip.receive(stranger, Pull(), self._local(node))
        pushes = [
            message
            for receiver, message in node.gossip.drain()
            if receiver == stranger and isinstance(message, Push)
        ]
        assert [push.last for push in pushes] == [False] * (len(pushes) - 1) + [True]
        return (
            [one for push in pushes for one in push.records],
            [one for push in pushes for one in push.rumours],
        )

    def living(self) -> list[int]:
        return [number for number, node in enumerate(self.nodes) if node.running]

    def believers(self, about: int, liveness: str) -> int:
        """How many running nodes believe that of `about`."""
        name = self.name(about)
        return sum(
            self.knows(number).get(name) == liveness for number in self.living() if number != about
        )

    def name(self, number: int) -> str:
        return short_text(self.nodes[number].identity.node)

    def told(self, words: str) -> list[tuple[float, str]]:
        return [event for node in self.nodes for event in node.events if words in event[1]]

    @property
    def trace(self) -> str:
        """A hash over everything delivered, in order."""
        return self._trace.hexdigest()

    def _local(self, node: SimulatedNode) -> float:
        return self.now + node.clock_offset

    def _push(self, at: float, kind: str, what: Any) -> None:
        heapq.heappush(self._queue, (at, next(self._count), kind, what))

    def _after(self, node: SimulatedNode) -> None:
        """What a pump does after each call: send, note events, sleep until the deadline."""
        for receiver, message in node.gossip.drain():
            self._send(node, receiver, message)
        node.events.extend((self.now, text) for _, text in node.gossip.drain_events())
        wake_at = max(node.gossip.next_deadline() - node.clock_offset, self.now)
        if node.running and wake_at < float("inf") and wake_at != node.wake_at:
            node.wake_at = wake_at
            self._push(wake_at + 1e-6, "wake", node)

    def _send(self, sender: SimulatedNode, receiver: NodeId, message: GossipMessage) -> None:
        data = _encoder.encode(message)
        self.bytes_sent += len(data)
        self.messages_sent += 1
        target = self.by_id.get(receiver)
        delay = self.rng.uniform(*self.delay)
        if target is None or (not target.running and target.refuses):
            self._push(self.now + delay, "unreachable", (sender, receiver))
            return
        apart = frozenset((sender.identity.node, receiver)) in self.cut
        if not apart and self.rng.random() >= self.loss:
            self._push(self.now + delay, "deliver", (sender.identity.node, receiver, data))

    def _deliver(self, sender: NodeId, receiver: NodeId, data: bytes) -> None:
        node = self.by_id[receiver]
        if not node.running:
            return
        if self.now < node.paused_until:
            node.mail.append((sender, data))
            return
        self._trace.update(b"%.6f" % self.now + sender + receiver + data)
        node.gossip.receive(sender, _decoder.decode(data), self._local(node))
        self._after(node)

    def _wake(self, node: SimulatedNode) -> None:
        if not node.running or self.now < node.paused_until:
            return
        node.wake_at = float("inf")
        mail, node.mail = node.mail, []
        for sender, data in mail:
            node.gossip.receive(sender, _decoder.decode(data), self._local(node))
        node.gossip.tick(self._local(node))
        self._after(node)
