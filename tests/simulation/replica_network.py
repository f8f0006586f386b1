"""Sessions on replicas of Stages in virtual time: real routing, records as old as they get.

A Host computes one step at a time, in the order they came. So one replica of each Stage gives
1 / STEP_S tokens per second at most, and two give twice that if they get equal shares.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec
from model_records import LAYERS, MODEL
from virtual_time import VirtualTime

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.own_sessions import OwnSessions
from diffuse_core.domain.publisher import SESSIONS_INTERVAL_S
from diffuse_core.domain.records import Holding, Load, Record
from diffuse_core.domain.router import candidate_of, choose_route
from diffuse_core.domain.slices import Slice

STEP_S = 0.02
HOP_S = 0.0005
NEWS_S = 0.6
"""Until a change is looked at (every half second) and has come by gossip."""
TOKENS = 100
PAUSE_S = 1.0
"""Most that somebody thinks before they ask again."""
STAGES = 2


class _Host:
    """One at work: it publishes its load as the publisher does."""

    def __init__(self, node: NodeId, part: Slice) -> None:
        self.node, self.part = node, part
        self.free_at = 0.0
        self.sessions = 0
        self.waited = [0.0]
        self.due = False
        self.said_at = -SESSIONS_INTERVAL_S
        self.record = Record(
            node=node,
            sequence=1,
            role="host",
            version="0",
            holding=Holding(MODEL, part, "ready"),
        )

    def load(self) -> Load:
        recent = self.waited[-50:]
        wait_s = sum(recent) / len(recent) if self.sessions else 0.0
        return Load(sessions=self.sessions, step_ms=1000 * STEP_S, wait_ms=1000 * wait_s)


@dataclass
class _Way:
    """Where the next step of a Session's token is."""

    route: list[NodeId]
    steps: int = 0

    @property
    def node(self) -> NodeId:
        return self.route[self.steps % len(self.route)]


class ReplicaNetwork:
    """`replicas` of each of two Stages; `clients`, each with so many Sessions at a time."""

    def __init__(self, seed: int, *, replicas: int, clients: int, sessions_each: int) -> None:
        self.time = VirtualTime()
        self.rng = random.Random(seed)
        self.tokens = 0
        span = LAYERS // STAGES
        self.hosts = {
            node: _Host(node, Slice(stage * span, (stage + 1) * span))
            for stage in range(STAGES)
            for number in range(replicas)
            for node in [NodeId(bytes([stage * replicas + number + 1]) * 32)]
        }
        self._known = {node: host.record for node, host in self.hosts.items()}
        for _ in range(clients):
            own = OwnSessions()
            begin = self.rng.uniform(0.0, PAUSE_S) if clients > 1 else 0.0
            for number in range(sessions_each):
                self.time.put(begin, self._ask, own, number)

    def throughput(self, seconds: float, warm_up: float = 20.0) -> float:
        """Tokens per second of all Sessions together."""
        self.time.run_until(warm_up)
        before = self.tokens
        self.time.run_until(warm_up + seconds)
        return (self.tokens - before) / seconds

    # --- a Session --------------------------------------------------------------------------

    def _ask(self, own: OwnSessions, number: int, _: None) -> None:
        now = self.time.now
        candidates = [
            candidate_of(
                Member(record=record, liveness="alive", heard_at=now),
                own.estimate(node, record, now),
                own=own.count(node),
            )
            for node, record in self._known.items()
        ]
        route = [node for node, _ in choose_route(LAYERS, candidates, set(), self.rng)]
        own.hold(number, route, now)
        for node in route:
            self._count(node, 1)
        self._arrive(own, number, _Way(route))

    def _arrive(self, own: OwnSessions, number: int, way: _Way) -> None:
        host, now = self.hosts[way.node], self.time.now
        begin = max(now, host.free_at)
        host.waited.append(begin - now)
        host.free_at = begin + STEP_S
        self.time.put(host.free_at + HOP_S, self._go_on, own, number, way)

    def _go_on(self, own: OwnSessions, number: int, way: _Way) -> None:
        way.steps += 1
        self.tokens += way.steps % STAGES == 0
        if way.steps < TOKENS * STAGES:
            self._arrive(own, number, way)
            return
        own.drop(number)
        for node in way.route:
            self._count(node, -1)
        self.time.put(self.time.now + self.rng.uniform(0, PAUSE_S), self._ask, own, number)

    # --- what is known of Hosts -------------------------------------------------------------

    def _count(self, node: NodeId, more: int) -> None:
        host = self.hosts[node]
        host.sessions += more
        if not host.due:
            host.due = True
            at = max(self.time.now, host.said_at + SESSIONS_INTERVAL_S)
            self.time.put(at, self._publish, host)

    def _publish(self, host: _Host, _: None, __: None) -> None:
        host.due = False
        host.said_at = self.time.now
        sequence = host.record.sequence + 1
        host.record = msgspec.structs.replace(host.record, sequence=sequence, load=host.load())
        self.time.put(self.time.now + NEWS_S, self._learn, host.record)

    def _learn(self, record: Record, _: None, __: None) -> None:
        self._known[NodeId(record.node)] = record
