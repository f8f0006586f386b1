"""Scenarios with figures: reported at a thousand nodes, asserted loosely at a hundred."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gathering import gather
from model_records import host_record, random_load
from watching import Watch, percentile

from diffuse_core.domain.gossip import GOSSIP_INTERVAL_S

if TYPE_CHECKING:
    from simulated_network import SimulatedNetwork

SAMPLES = 5


def rounds_to_know(seed: int, nodes: int, *, loss: float = 0.1) -> dict[str, float]:
    """Gossip rounds until a new record is known to 99 % and to all; the worst of SAMPLES."""
    net = gather(seed, nodes, loss=loss)
    most, all_ = [], []
    for sample in range(SAMPLES):
        number = net.rng.randrange(nodes)
        address = f"10.9.9.{sample}:1"
        net.say(number, addresses=(address,))
        shares = _shares(net, net.nodes[number].id, address, 60)
        most.append(_first(shares, 0.99))
        all_.append(_first(shares, 1.0))
        net.run(5.0)
    return {"rounds_99": max(most), "rounds_all": max(all_)}


def _shares(net: SimulatedNetwork, about: Any, address: str, rounds: int) -> list[float]:
    """After each gossip round, the share of the nodes that know the address."""
    shares: list[float] = []
    while len(shares) < rounds and (not shares or shares[-1] < 1.0):
        net.run(GOSSIP_INTERVAL_S)
        knowing = sum(address in node.gossip.addresses(about) for node in net.nodes)
        shares.append(knowing / len(net.nodes))
    return shares


def _first(shares: list[float], share: float) -> float:
    reached = [index + 1 for index, one in enumerate(shares) if one >= share]
    return float(reached[0]) if reached else float("inf")


def rounds_to_join(seed: int, nodes: int, *, loss: float = 0.1) -> dict[str, float]:
    """Rounds until a newcomer knows everybody, and until everybody knows it."""
    net = gather(seed, nodes, loss=loss)
    number = net.add(via=net.rng.randrange(nodes), record={"addresses": ("10.8.8.8:1",)})
    newcomer = net.nodes[number]
    rounds, knows, known = 0, 0.0, 0.0
    while rounds < 100 and not (knows and known):
        net.run(GOSSIP_INTERVAL_S)
        rounds += 1
        if not knows and len(net.members(number)) == nodes + 1:
            knows = float(rounds)
        if not known and all(node.gossip.addresses(newcomer.id) for node in net.nodes):
            known = float(rounds)
    return {"rounds_newcomer_knows": knows, "rounds_newcomer_known": known}


def seconds_to_be_gone(
    seed: int, nodes: int, *, silent: bool, kills: int = 10, loss: float = 0.0
) -> dict[str, float]:
    """Nodes killed one after the other: over all pairs of victim and living observer."""
    net = gather(seed, nodes, loss=loss)
    watch = Watch(net)
    taken: list[float] = []
    for number in net.rng.sample(range(nodes), kills):
        net.run(net.rng.uniform(1.0, 3.0))
        killed_at = net.now
        net.kill(number, silent=silent)
        net.run(60.0)
        seconds = watch.seconds_until_dead(number, killed_at)
        taken += seconds + [float("inf")] * (len(net.living()) - len(seconds))
    return {
        "gone_p50_s": percentile(taken, 0.5),
        "gone_p99_s": percentile(taken, 0.99),
        "gone_max_s": max(taken),
        "false_deaths": len(watch.false_deaths),
    }


@dataclass
class Pausing:
    """Some nodes are in the habit of pausing, each on its own, for a while now and then."""

    net: SimulatedNetwork
    share: float = 0.05
    pause: tuple[float, float] = (1.0, 5.0)
    every: tuple[float, float] = (20.0, 60.0)
    pauses: int = 0
    numbers: list[int] = field(default_factory=list)

    def begin(self) -> None:
        count = max(1, round(self.share * len(self.net.nodes)))
        self.numbers = self.net.rng.sample(range(len(self.net.nodes)), count)
        for number in self.numbers:
            self._later(number)

    def _later(self, number: int) -> None:
        at = self.net.now + self.net.rng.uniform(*self.every)
        self.net.at(at, lambda: self._pause(number))

    def _pause(self, number: int) -> None:
        self.pauses += 1
        self.net.pause(number, self.net.rng.uniform(*self.pause))
        self._later(number)


def false_deaths(
    seed: int, nodes: int, *, seconds: float, loss: float = 0.1, **habits: Any
) -> dict[str, float]:
    """Nodes that run but are held for dead, while some pause and messages are lost."""
    net = gather(seed, nodes, loss=loss)
    watch = Watch(net)
    pausing = Pausing(net, **habits)
    pausing.begin()
    before, happened = net.traffic.copy(), net.time.happened
    net.run(seconds)
    sent = net.traffic.since(before)
    return {
        "false_deaths": len(watch.false_deaths),
        "pauses": pausing.pauses,
        "suspicions_per_node_and_minute": watch.suspicions / nodes / seconds * 60,
        "bytes_per_node_and_s": sent.wire_bytes / nodes / seconds,
        "events": net.time.happened - happened,
    }


def traffic(
    seed: int, nodes: int, *, busy: bool, seconds: float = 120.0, loss: float = 0.0
) -> dict[str, float]:
    """Bytes that a node sends a second, with framing; `busy`: hosts whose load changes."""
    net = gather(seed, nodes, record=host_record if busy else None, loss=loss)
    if busy:
        for number in range(nodes):
            _change_load(net, number, random.Random(net.rng.random()))
        net.run(10.0)
    before = net.traffic.copy()
    net.run(seconds)
    sent = net.traffic.since(before)
    figures = {
        f"{kind}_B_per_s": size / nodes / seconds for kind, size in sent.sizes.most_common()
    }
    return {
        "bytes_per_node_and_s": sent.wire_bytes / nodes / seconds,
        "messages_per_node_and_s": sent.messages.total() / nodes / seconds,
    } | figures


LOAD_INTERVAL_S = 2.0


def _change_load(net: SimulatedNetwork, number: int, rng: random.Random) -> None:
    """The host's load changes now and every LOAD_INTERVAL_S; what is published gossip decides."""

    def change() -> None:
        net.say(number, **host_record(number, random_load(rng)))
        net.at(net.now + LOAD_INTERVAL_S, change)

    net.at(net.now + rng.uniform(0, LOAD_INTERVAL_S), change)
