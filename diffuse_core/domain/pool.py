"""Pool: nodes to draw from at random, in time that does not grow with their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

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
