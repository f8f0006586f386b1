"""Hosts that place themselves: the real state machine over simulated gossip; loads take time.

What the network believes comes out of the gossip of each Host; what is true (`held`) is kept
beside, and for how long each layer was held by no ready Host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.coverage import COMMITTED
from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.placing import Drain, Load, Placing, Publish, Tell, Unload, Withdraw
from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.records import Holding, ModelRef, record_node
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from shared_view import SharedView
    from simulated_network import SimulatedNetwork

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import Record

FIRST_LOOK_S = 1.0
"""From the start of a process until it plans: it has read the model and heard of the network."""


@dataclass
class PlacedHost:
    number: int
    placing: Placing
    capacity: int
    record: dict[str, Any]
    held: Slice | None = None
    moves: int = 0
    honest: bool = True
    sessions_s: float = 0.0
    wake_at: float = math.inf
    told: list[tuple[float, str]] = field(default_factory=list)


class PlacementNetwork:
    """Hosts of one model in a simulated network.

    `load_s` is how long a load takes, give or take a fifth. `gaps` has for each layer that was
    lost, since the model was covered first, how long nobody held it.
    """

    def __init__(
        self,
        net: SimulatedNetwork | SharedView,
        model: ModelRef,
        *,
        load_s: float = 30.0,
        target: int = 2,
    ) -> None:
        self.net = net
        self.model = model
        self.load_s = load_s
        self.target = target
        self.hosts: dict[int, PlacedHost] = {}
        self.moves = 0
        self.claims = 0
        self.covered_at: float | None = None
        self.gaps: list[float] = []
        self._lost_at: dict[int, float] = {}
        self._summaries: dict[int, tuple[Record, HostSummary | None]] = {}

    # --- what happens ----------------------------------------------------------------------

    def join(
        self, capacity: int, via: int | None, *, honest: bool = True, max_layers: int | None = None
    ) -> int:
        """A new Host, which plans soon. One that is not `honest` never acts once it serves."""
        record = {"capacity": capacity}
        number = self.net.add(via=via, record=record)
        placing = Placing(
            self.net.nodes[number].id,
            capacity,
            self.model.shape,
            max_layers=max_layers,
            target_replicas=self.target,
            pace=Pace(),
        )
        self.hosts[number] = PlacedHost(number, placing, capacity, record, honest=honest)
        self.net.at(self.net.now + FIRST_LOOK_S, lambda: self._tick(number))
        return number

    def kill(self, number: int, *, silent: bool = False) -> None:
        self.net.kill(number, silent=silent)
        self.hosts[number].held = None
        self._account()

    def leave(self, number: int, sessions: int = 0) -> None:
        """The process is asked to stop."""
        host = self.hosts[number]
        host.placing.leave(self.net.now, sessions)
        self._do(host)

    # --- what is true ----------------------------------------------------------------------

    def living(self) -> list[PlacedHost]:
        return [host for host in self.hosts.values() if self.net.nodes[host.number].running]

    def held(self) -> list[Slice]:
        return [host.held for host in self.living() if host.held is not None]

    def counts(self) -> tuple[int, ...]:
        return replicas_per_layer(self.model.shape.layers, self.held())

    def longest_gap(self) -> float:
        """The longest time that a layer was held by nobody, those that still are included."""
        return max(
            [*self.gaps, *(self.net.now - since for since in self._lost_at.values())], default=0.0
        )

    def told(self, words: str) -> list[tuple[float, str]]:
        return [line for host in self.hosts.values() for line in host.told if words in line[1]]

    def settled(self) -> bool:
        """Whether no Host claims, drains or loads."""
        return all(host.placing.phase == "ready" for host in self.living())

    # --- how it runs -----------------------------------------------------------------------

    def _tick(self, number: int) -> None:
        host, node = self.hosts[number], self.net.nodes[number]
        host.wake_at = math.inf
        if not node.running:
            return
        if self.net.now < node.paused_until:
            self.net.at(node.paused_until, lambda: self._tick(number))
            return
        if host.honest or host.placing.phase != "ready":
            members = self.net.members(number)
            hosts = [one for one in map(self._summary, members) if one is not None]
            nodes = sum(member.live for member in members)
            host.placing.tick(self.net.now, hosts, nodes)
            self._do(host)

    def _summary(self, member: Member) -> HostSummary | None:
        record = member.record
        if not member.live or record.holding is None:
            return None
        known = self._summaries.get(id(record))
        if known is None or known[0] is not record:
            holding = record.holding
            found = None
            if holding.model == self.model and holding.state in COMMITTED:
                node = record_node(record)
                found = HostSummary(node, holding.slice, holding.state, record.capacity)
            known = self._summaries[id(record)] = (record, found)
        return known[1]

    def _do(self, host: PlacedHost) -> None:
        for step in host.placing.drain():
            match step:
                case Publish():
                    self.claims += step.state == "claiming"
                    holding = Holding(self.model, step.slice, step.state)
                    host.record["holding"] = holding
                    self.net.say(host.number, **host.record)
                    if step.state == "ready":
                        host.held = step.slice
                        self._account()
                case Withdraw():
                    host.record["holding"] = None
                    self.net.say(host.number, **host.record)
                case Load():
                    took = self.load_s * self.net.rng.uniform(0.8, 1.2)
                    self.net.at(self.net.now + took, lambda: self._loaded(host))
                case Drain():
                    self.net.at(self.net.now + host.sessions_s, lambda: self._drained(host))
                case Unload():
                    if host.held is not None and host.placing.phase == "loading":
                        self.moves += 1
                        host.moves += 1
                    host.held = None
                    self._account()
                case Tell():
                    host.told.append((self.net.now, step.text))
                case _:
                    self.net.leave(host.number)
        self._schedule(host)

    def _loaded(self, host: PlacedHost) -> None:
        if self.net.nodes[host.number].running:
            host.placing.loaded(self.net.now)
            self._do(host)

    def _drained(self, host: PlacedHost) -> None:
        if self.net.nodes[host.number].running:
            host.placing.drained()
            self._schedule(host)

    def _schedule(self, host: PlacedHost) -> None:
        at = max(self.net.now, host.placing.next_deadline())
        if at < host.wake_at:
            host.wake_at = at
            self.net.at(at, lambda: self._tick(host.number))

    def _account(self) -> None:
        """Note which layers are lost, and for how long they were."""
        lost = {layer for layer, count in enumerate(self.counts()) if count == 0}
        if self.covered_at is None:
            if not lost:
                self.covered_at = self.net.now
            return
        for layer in lost - self._lost_at.keys():
            self._lost_at[layer] = self.net.now
        for layer in self._lost_at.keys() - lost:
            self.gaps.append(self.net.now - self._lost_at.pop(layer))
