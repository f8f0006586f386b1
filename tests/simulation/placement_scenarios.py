"""What befalls a network of Hosts: all join within a minute, a fifth dies, they come and go."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_bound import can_cover, lognormal_capacities, most_replicas
from placement_models import SMALL
from placement_network import PlacementNetwork
from shared_view import SharedView
from simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from diffuse_core.domain.records import ModelRef

JOINING_S = 60.0


@dataclass(frozen=True)
class Setting:
    """Hosts of lognormal capacity: `median` layers, times exp of a normal of width `sigma`."""

    count: int
    model: ModelRef = SMALL
    median: float = 3.0
    sigma: float = 0.8
    load_s: float = 30.0
    loss: float = 0.0
    target: int = 2
    gossip: bool = True
    """Over real gossip; otherwise over a shared view with delays, for long simulations."""

    def capacities(self, rng: random.Random, count: int | None = None) -> list[int]:
        return lognormal_capacities(
            rng, count or self.count, self.model.shape, median=self.median, sigma=self.sigma
        )


class Scenario:
    """One run. Node 0 is a sentinel that all know; all chance comes from `seed`."""

    def __init__(self, seed: int, setting: Setting) -> None:
        self.setting = setting
        self.rng = random.Random(seed)
        self.net: SimulatedNetwork | SharedView = SharedView(seed)
        if setting.gossip:
            self.net = SimulatedNetwork(seed, loss=setting.loss)
        self.net.add(record={"role": "sentinel"})
        self.hosts = PlacementNetwork(
            self.net, setting.model, load_s=setting.load_s, target=setting.target
        )
        self.capacities = setting.capacities(self.rng)
        self.coverable_at: float | None = None
        self.departures = 0

    @property
    def bound(self) -> int:
        """An upper bound of the minimum of holders, with the Hosts that live now."""
        living = [host.capacity for host in self.hosts.living()]
        return most_replicas(living, self.setting.model.shape)

    def join_all(self) -> None:
        """All within a minute, in random order; then until nobody claims or loads."""
        joined: list[int] = []
        times = sorted(self.rng.uniform(0, JOINING_S) for _ in self.capacities)
        for at, capacity in zip(times, self.capacities, strict=True):
            self.net.run(at - self.net.now)
            self.hosts.join(capacity, via=0)
            joined.append(capacity)
            if self.coverable_at is None and can_cover(joined, self.setting.model.shape):
                self.coverable_at = self.net.now
        self.settle()

    def settle(self, limit_s: float = 240.0) -> None:
        """Until nobody claims, drains or loads."""
        end = self.net.now + limit_s
        self.net.run(2.0)
        while self.net.now < end and not self.hosts.settled():
            self.net.run(2.0)

    def decimate(self, share: float, *, silent: bool = False) -> None:
        """Kill that share of the Hosts at one moment."""
        living = self.hosts.living()
        for host in self.rng.sample(living, int(share * len(living))):
            self.hosts.kill(host.number, silent=silent)
            self.departures += 1

    def churn(self, per_minute: float, minutes: float) -> None:
        """So large a share goes each minute, half of them without a word, and as many come."""
        pause = 60.0 / (per_minute * self.setting.count)
        end = self.net.now + 60.0 * minutes
        while self.net.now < end:
            self.net.run(self.rng.expovariate(1 / pause) / 2)
            gone = self.rng.choice(self.hosts.living())
            if self.rng.random() < 0.5:
                self.hosts.kill(gone.number, silent=self.rng.random() < 0.5)
            else:
                self.hosts.leave(gone.number)
            self.departures += 1
            self.net.run(self.rng.expovariate(1 / pause) / 2)
            (capacity,) = self.setting.capacities(self.rng, 1)
            self.hosts.join(capacity, via=0)
