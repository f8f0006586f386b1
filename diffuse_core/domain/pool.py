"""Pool and round: nodes to draw from at random, or one after the other in random order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator

    from diffuse_core.domain.identity import NodeId


class Pool:
    """A set of nodes that can be sampled; a node that goes is replaced by the last one."""

    def __init__(self) -> None:
        self._nodes: list[NodeId] = []
        self._place: dict[NodeId, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._place

    def add(self, node: NodeId) -> None:
        """Put `node` in, once."""
        if node not in self._place:
            self._place[node] = len(self._nodes)
            self._nodes.append(node)

    def discard(self, node: NodeId) -> None:
        """Take `node` out, if it is in."""
        place = self._place.pop(node, None)
        if place is None:
            return
        last = self._nodes.pop()
        if last != node:
            self._nodes[place] = last
            self._place[last] = place

    def all(self) -> list[NodeId]:
        """Every node, in no order to rely on."""
        return list(self._nodes)

    def sample(self, rng: random.Random, count: int) -> list[NodeId]:
        """Up to `count` different nodes, drawn at random."""
        return rng.sample(self._nodes, min(count, len(self._nodes)))


class Round:
    """Nodes in a random order, each taken once before a new round begins.

    The caller knows who is still there: `known` is asked for it. Bounded by twice their number,
    however many come and go.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._nodes: list[NodeId] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: NodeId, known: Collection[NodeId]) -> None:
        """Put `node`, one of the `known`, somewhere into the round under way."""
        self._nodes.insert(self._rng.randint(0, len(self._nodes)), node)
        if len(self._nodes) > 2 * len(known):
            # Whoever came, went and came again is in more than once.
            self._nodes = [node for node in dict.fromkeys(self._nodes) if node in known]

    def take(self, known: Collection[NodeId]) -> Iterator[NodeId]:
        """Take those of the `known` that are left in this round, or all when none were."""
        if not self._nodes:
            self._nodes = list(known)
            self._rng.shuffle(self._nodes)
        while self._nodes:
            node = self._nodes.pop()
            if node in known:
                yield node
