"""Networks that exist already: nodes that know each other from the start, without the joining."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from simulated_network import BOOT_MS, SimulatedNetwork

from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.messages import Push
from diffuse_core.domain.records import Record, first_sequence, seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated_node import Liar, SimulatedNode

SETTLE_S = 15.0


def gather(
    seed: int,
    count: int,
    *,
    record: Callable[[int], dict[str, Any]] | None = None,
    liars: dict[int, Liar] | None = None,
    settle: float = SETTLE_S,
    loss: float = 0.0,
    **weather: Any,
) -> SimulatedNetwork:
    """A network of `count` nodes in which everybody knows everybody's first record.

    `record` gives the fields of each node's record, `liars` who is one. Nothing is lost until the
    network has settled.
    """
    gc.unfreeze()
    gc.collect()
    net = SimulatedNetwork(seed, **weather)
    fields = [record(number) if record else {} for number in range(count)]
    introductions = [_introduction(number, changes) for number, changes in enumerate(fields)]
    for number in range(count):
        net.add(record=fields[number], liar=(liars or {}).get(number))
        node = net.nodes[number]
        for other, push in introductions:
            node.gossip.receive(other, push, node.local(net.now))
            node.gossip.met(other, node.local(net.now))
        _hush(node)
        net.after(node)
        node.events.clear()
    # What is there now stays: the collector need not walk through a million records again.
    gc.freeze()
    net.run(settle)
    net.weather.loss = loss
    return net


def _hush(node: SimulatedNode) -> None:
    """Nobody has to be told of anybody: everybody knows already."""
    node.gossip._announcer._records.clear()
    node.gossip.drain()


def _introduction(number: int, changes: dict[str, Any]) -> tuple[NodeId, Push]:
    """The very record that node `number` publishes first, as it would introduce itself."""
    identity = Identity(number.to_bytes(32, "big"))
    about = {"role": "host", "version": "0"} | changes
    record = Record(node=identity.node, sequence=first_sequence(BOOT_MS), **about)
    return identity.node, Push((seal(record, identity),))
