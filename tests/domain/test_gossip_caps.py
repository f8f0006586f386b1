"""Gossip under fire: random hostile messages never raise and never pass a bound."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from domain_samples import identity, node, record, signed
from gossip_samples import ME
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from diffuse_core.domain import announcing, exchange, newsqueue, rechecks, wants
from diffuse_core.domain import gossip as module
from diffuse_core.domain.buckets import SUMMARY_BYTES
from diffuse_core.domain.clocks import MAX_CLOCKS
from diffuse_core.domain.coordinates import MAX_US, Coordinate
from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import (
    Ack,
    AnyMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Rumour,
    Summary,
    Want,
)
from diffuse_core.domain.records import MAX_CLOCK_MS, Load, SignedRecord, first_sequence
from diffuse_core.domain.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.messages import GossipMessage

MAX_NODES = 12
BOOT_MS = 1_000_000
BOOT = first_sequence(BOOT_MS)
NOW_AND_THEN = [1, BOOT, BOOT + 1, first_sequence(BOOT_MS + 10**9), 2**63 - 1]
SIGNED = [
    signed(number, sequence, left=left)
    for number in range(21)
    for sequence in NOW_AND_THEN[:4]
    for left in (False, True)
]
VERDICTS = Verdicts()
NODES = [node(number) for number in range(21)] + [NodeId(bytes(32))]
PLACE = Coordinate((MAX_US, -MAX_US, 0, 1, 2, 3, 4, 5), MAX_US, 0)
CLOCKS = [0, 1, BOOT_MS, BOOT_MS + 10**9, MAX_CLOCK_MS]


def _rumours(rng: random.Random) -> tuple[Rumour, ...]:
    return tuple(
        Rumour(
            rng.choice(NODES), rng.choice(NOW_AND_THEN), rng.choice(("alive", "suspect", "dead"))
        )
        for _ in range(rng.randrange(9))
    )


def _records(rng: random.Random) -> tuple[SignedRecord, ...]:
    junk = SignedRecord(rng.randbytes(rng.randrange(60)), bytes(64))
    return tuple(rng.choice([*SIGNED, junk]) for _ in range(rng.randrange(9)))


def _message(rng: random.Random) -> GossipMessage:
    """Any message, mostly of things that may be so."""
    clock, nonce = rng.choice(CLOCKS), rng.getrandbits(32)
    makers: list[Callable[[], GossipMessage]] = [
        lambda: Ping(nonce, _rumours(rng), clock),
        lambda: Ack(nonce, _rumours(rng), clock, rng.choice((None, PLACE))),
        lambda: PingRequest(nonce, rng.choice(NODES)),
        lambda: Pull(_rumours(rng), rng.random() < 0.5, clock, rng.randbytes(rng.randrange(9))),
        lambda: Push(_records(rng), _rumours(rng), rng.random() < 0.5),
        lambda: Want(tuple(rng.choices(NODES, k=rng.randrange(1, 9)))),
        lambda: Summary(rng.choice((b"0", b"x")) * SUMMARY_BYTES, clock),
    ]
    return rng.choice(makers)()


LIMITS: list[tuple[Any, str, Any]] = [
    (newsqueue, "MAX_NEWS", 6),
    (wants, "MAX_WANTED", 6),
    (wants, "MAX_ASKED_OF_ONE", 3),
    (rechecks, "MAX_POOL", 4),
    (exchange, "MAX_ANSWERS", 3),
    (announcing, "MAX_ANNOUNCED", 5),
    (module, "MAX_OUTBOX", 40),
]


class Fire(RuleBasedStateMachine):
    """One node, fed by everybody."""

    @initialize()
    def start(self) -> None:
        self.patch = pytest.MonkeyPatch()
        for where, name, value in LIMITS:
            self.patch.setattr(where, name, value)
        self.now = 0.0
        self.gossip = Gossip(
            identity(0), random.Random(1), boot_ms=BOOT_MS, max_nodes=MAX_NODES, verdicts=VERDICTS
        )
        self.gossip.set_record(record(0), self.now)
        self.sequences = [self._own()]

    def teardown(self) -> None:
        self.patch.undo()

    def _own(self) -> int:
        standing = self.gossip._publisher.standing
        assert standing is not None
        return standing.sequence

    @rule(seed=st.integers(0, 2**16), count=st.sampled_from([1, 5, 60]))
    def hear(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            self.gossip.receive(rng.choice(NODES), _message(rng), self.now)

    @rule(seconds=st.sampled_from([0.01, 0.3, 2.0, 30.0, 8000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.gossip.tick(self.now)

    @rule(sessions=st.integers(0, 3), capacity=st.integers(0, 1))
    def say(self, sessions: int, capacity: int) -> None:
        load = Load(sessions=sessions)
        self.gossip.set_record(record(0, load=load, capacity=capacity), self.now)

    @rule(number=st.integers(0, 20))
    def meet(self, number: int) -> None:
        self.gossip.met(NODES[number], self.now)
        self.gossip.pull_from(NODES[number])

    @rule(number=st.integers(0, 20))
    def miss(self, number: int) -> None:
        self.gossip.unreachable(NODES[number], self.now)

    @rule()
    def send(self) -> None:
        out = self.gossip.drain()
        assert len(out) <= 40 + 3 + announcing.FIRST_MOST
        for _, message in out:
            data = msgspec.msgpack.encode(message)
            assert len(data) < 2**19
            msgspec.msgpack.decode(data, type=AnyMessage)
        self.gossip.drain_events()

    @invariant()
    def all_is_bounded(self) -> None:
        if not hasattr(self, "gossip"):
            return
        gossip = self.gossip
        assert len(gossip._roster.directory) <= MAX_NODES
        assert len(gossip._announcer._records) <= 6
        assert len(gossip._announcer._beliefs) <= 6
        assert len(gossip._roster.position._heard) <= MAX_NODES
        assert len(gossip._announcer._full) <= announcing.MAX_FULL + 1
        assert len(gossip._wants) <= 6
        assert len(gossip._rechecks._hopes) <= 4
        assert len(gossip._rechecks._doubts) <= 4
        assert len(gossip._exchange._pulls) <= 3
        assert len(gossip._clock._told) <= MAX_CLOCKS
        assert len(gossip._events) <= module.MAX_EVENTS
        assert len(gossip._outbox) <= 40
        assert gossip.next_deadline() > -1.0

    @invariant()
    def we_stand_in_our_own_table_under_rising_sequences(self) -> None:
        if not hasattr(self, "gossip"):
            return
        entry = self.gossip._roster.directory.get(ME)
        assert entry is not None
        assert entry.record == self.gossip._publisher.standing
        fresh = self._own()
        rebased = any("clock is far ahead" in text for _, text in self.gossip._events)
        assert fresh >= self.sequences[-1] or rebased
        self.sequences.append(fresh)


TestFire = Fire.TestCase
TestFire.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
