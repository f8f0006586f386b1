"""A network without messages: what is said is seen by each node after a time of its own.

For long simulations of what Hosts do with what they know, where how they come to know it does
not matter. Has the parts of SimulatedNetwork that placement needs, and costs a tenth. The times
are those that gossip takes (tests/bench/gossip.py): news reach a node in up to some rounds, a
process that ended is found dead in seconds, a machine that is gone a little later.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from virtual_time import VirtualTime

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_S, ROUND_S = 0.1, 0.2
FOUND_DEAD_S = (2.0, 6.0)
FOUND_SILENT_S = (9.0, 16.0)
OLD_S = 30.0


@dataclass
class SeenNode:
    """`said` are its records and when each came out; None instead of one: it is gone."""

    number: int
    id: NodeId
    running: bool = True
    paused_until: float = 0.0
    said: list[tuple[float, Member | None]] = field(default_factory=list)


class SharedView:
    """Nodes 0..n-1; times in virtual seconds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = VirtualTime()
        self.nodes: list[SeenNode] = []
        self._there: list[SeenNode] = []

    @property
    def now(self) -> float:
        return self.time.now

    def add(self, *, via: int | None = None, record: dict[str, Any] | None = None) -> int:
        """Start a node. It sees at once what others see; `via` makes no difference."""
        del via
        node = SeenNode(len(self.nodes), NodeId(self.rng.randbytes(32)))
        self.nodes.append(node)
        self._there.append(node)
        self.say(node.number, **(record or {}))
        return node.number

    def say(self, number: int, **changes: Any) -> None:
        node = self.nodes[number]
        fields = {"role": "host", "version": "0"} | changes
        record = Record(node=node.id, sequence=len(node.said), **fields)
        self._put(node, self.now, Member(record=record, liveness="alive", heard_at=0.0))

    def kill(self, number: int, *, silent: bool = False) -> None:
        node = self.nodes[number]
        node.running = False
        found = self.rng.uniform(*(FOUND_SILENT_S if silent else FOUND_DEAD_S))
        self._put(node, self.now + found, None)

    def leave(self, number: int) -> None:
        node = self.nodes[number]
        node.running = False
        self._put(node, self.now, None)

    def members(self, number: int) -> tuple[Member, ...]:
        """What a node sees now."""
        found = []
        for node in self._there:
            for at, member in reversed(node.said):
                if self.now >= at + self._delay(number, node.number, at):
                    if member is not None:
                        found.append(member)
                    break
        return tuple(found)

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.time.put(when, _act, act)

    def run(self, seconds: float) -> None:
        self.time.run_until(self.now + seconds)

    def _put(self, node: SeenNode, at: float, member: Member | None) -> None:
        seen_by_all = [pair for pair in node.said if pair[0] < self.now - OLD_S]
        node.said = [*seen_by_all[-1:], *node.said[len(seen_by_all) :], (at, member)]
        self._there = [
            one
            for one in self._there
            if one.running or one.said[-1][0] > self.now - OLD_S or one is node
        ]

    def _delay(self, observer: int, about: int, at: float) -> float:
        """How long that piece of news takes to that observer: always the same."""
        if observer == about:
            return 0.0
        share = (observer * 7919 + about * 104_729 + int(at * 1000) * 31_337) % 1009 / 1009
        return FIRST_S + share * ROUND_S * math.log2(2 + len(self._there))


def _act(act: Callable[[], None], _: Any, __: Any) -> None:
    act()
