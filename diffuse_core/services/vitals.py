"""Vitals: the figures of a running node at one moment, for whoever watches over many machines."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.coverage import READY, by_model, cover
from diffuse_core.domain.identity import short_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffuse_core.domain.coverage import Coverage
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.roster import RosterCounts
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import RelayFigures
    from diffuse_core.ports import SensorSample
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.feed import FeedService
    from diffuse_core.services.host import HostService
    from diffuse_core.services.link import Traffic
    from diffuse_core.services.loop_lag import Lags
    from diffuse_core.services.node import Node
    from diffuse_core.services.relay import RelayService
    from diffuse_core.services.stage import StageService
    from diffuse_core.services.tally import AnswerTally, StageTally

HostState = Literal[
    "waiting", "reading", "downloading", "loading", "ready", "draining", "leaving", "failed"
]
MAX_NEIGHBOURS = 16
"""So many round trips are told, each under a node's id."""


@dataclass(frozen=True)
class Health:
    """Whether the node lives, and whether it does what it is for; `reason` says why not."""

    alive: bool
    ready: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class HostFigures:
    """What a Host holds and does. Bytes, seconds; `waiting` are Sessions with a step to run."""

    state: HostState
    text: str
    device: str
    model: ModelRef | None
    slice: Slice | None
    coverage: Coverage | None
    tally: StageTally
    weight_bytes: int = 0
    kv_used: int = 0
    kv_budget: int = 0
    sessions: int = 0
    waiting: int = 0
    step_s: float = 0.0
    wait_s: float = 0.0
    round_trips: Mapping[str, float]
    """Seconds to the neighbours in Routes and back, by the short forms of their ids."""


@dataclass(frozen=True, kw_only=True)
class RelayCounts:
    """What a Sentinel relays now, and did since its start."""

    now: RelayFigures
    reserved: int
    carried: int
    refused: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class NodeFigures:
    """Everything of one moment. What counts on meanwhile is to be read at once."""

    version: str
    role: str
    node: str
    uptime_s: float
    lags: Lags
    tasks: int
    links: int
    links_relayed: int
    traffic: Traffic
    gossip: RosterCounts
    members: Mapping[str, int]
    """By liveness."""
    models: Mapping[str, int]
    """How many there are, by their coverage."""
    answers: AnswerTally
    sensed: SensorSample
    host: HostFigures | None = None
    relay: RelayCounts | None = None


class Vitals:
    """Takes the figures of a node, whenever asked.

    Args:
        node: the node.
        version: of this program.
        role: of the node.
        feed: what measures the loop, and counts answers.
        host: the Host that it is, if it is one.
        compute: the thread that a Host computes on.
        relay: what it relays, if it is a Sentinel.
    """

    def __init__(
        self,
        node: Node,
        version: str,
        role: str,
        feed: FeedService,
        host: HostService | None = None,
        compute: ComputeThread | None = None,
        relay: RelayService | None = None,
    ) -> None:
        self._node = node
        self._version = version
        self._role = role
        self._feed = feed
        self._host = host
        self._compute = compute
        self._relay = relay
        self._started = node.clock.monotonic()

    def health(self) -> Health:
        """How it is. Whoever gets an answer knows that the event loop turns."""
        if self._compute is not None and not self._compute.alive:
            return Health(False, False, "the thread that computes has ended; restart the host")
        if not self._node.gossips:
            return Health(False, False, "gossip has ended; restart the node")
        if self._host is None or state_of(self._host) == "ready":
            return Health(True, True)
        return Health(True, False, f"the host is not ready: {self._host.phase_text()}")

    def status(self) -> str:
        """What it does, in a line for people."""
        if self._host is None:
            return f"{self._role} {short_text(self._node.id)} listens"
        held = "" if self._host.slice is None else f", layers {self._host.slice}"
        model = "" if self._host.model is None else f"{self._host.model.id}{held}: "
        return f"{model}{self._host.phase_text()}"

    def figures(self) -> NodeFigures:
        """The figures of this moment."""
        node = self._node
        members = node.members()
        coverages = _coverages(members, node.target_replicas)
        links = [link for mine in node.links.linked().values() for link in mine]
        return NodeFigures(
            version=self._version,
            role=self._role,
            node=short_text(node.id),
            uptime_s=node.clock.monotonic() - self._started,
            lags=self._feed.lags(),
            tasks=len(asyncio.all_tasks()),
            links=len(links),
            links_relayed=sum(link.relayed_through is not None for link in links),
            traffic=node.links.traffic,
            gossip=node.gossip_counts(),
            members=Counter(member.liveness for member in members),
            models=Counter(coverage.state for coverage in coverages.values()),
            answers=self._feed.tally,
            sensed=self._feed.sensed(),
            host=None if self._host is None else self._hosted(self._host, members, coverages),
            relay=None if self._relay is None else _relayed(self._relay),
        )

    def _hosted(
        self,
        host: HostService,
        members: Sequence[Member],
        coverages: Mapping[ModelRef, Coverage],
    ) -> HostFigures:
        stage = host.stage
        failed = self._compute is not None and not self._compute.alive
        state: HostState = "failed" if failed else state_of(host)
        return HostFigures(
            state=state,
            text=host.phase_text(),
            device=host.device,
            model=host.model,
            slice=host.slice,
            coverage=None if host.model is None else coverages.get(host.model),
            tally=host.tally,
            weight_bytes=0 if stage is None else stage.weight_bytes,
            kv_used=0 if stage is None else stage.kv_used,
            kv_budget=0 if stage is None else stage.kv_budget,
            sessions=0 if stage is None else stage.sessions,
            waiting=0 if stage is None else stage.waiting,
            step_s=0.0 if stage is None else stage.meter.step_ms() / 1000,
            wait_s=0.0 if stage is None else stage.meter.wait_ms() / 1000,
            round_trips={} if stage is None else _round_trips(stage, members),
        )


def state_of(host: HostService) -> HostState:
    """What a Host is doing, in one of few words."""
    progress = host.where.progress()
    if host.leaving:
        return "leaving"
    if host.ready.is_set():
        return "ready"
    if progress is not None:
        return progress.phase
    return "waiting" if host.stage is None else "draining"


def _coverages(members: Sequence[Member], target: int) -> dict[ModelRef, Coverage]:
    found = {}
    for model, mine in by_model(members).items():
        holdings = (member.record.holding for member in mine if member.live)
        held = [one.slice for one in holdings if one is not None and one.state in READY]
        found[model] = cover(model.shape.layers, held, target)
    return found


def _round_trips(stage: StageService, members: Sequence[Member]) -> dict[str, float]:
    wanted = stage.neighbours()
    found: dict[str, float] = {}
    for member in members:
        seconds = member.rtt_s if member.rtt_s is not None else member.distance_s
        if member.record.node in wanted and seconds is not None:
            found[short_text(member.record.node)] = seconds
        if len(found) >= MAX_NEIGHBOURS:
            break
    return found


def _relayed(relay: RelayService) -> RelayCounts:
    return RelayCounts(
        now=relay.figures(), reserved=relay.reserved, carried=relay.carried, refused=relay.refused
    )
