"""The news queue: about which nodes there is something to spread, and how often still.

Bounded, and cheap when it is long: what was sent least often comes first, of those the latest.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.identity import NodeId

RETRANSMIT = 5.0
"""Times per decade of members that a node passes on each piece of news."""
RETRANSMIT_LEAST = 8
"""In a small network chance alone would leave somebody out; but twice to each is enough."""
MAX_NEWS = 1024


class NewsQueue:
    """At most one piece of news per node."""

    def __init__(self) -> None:
        self._sent: dict[NodeId, int] = {}
        self._by_sent: dict[int, dict[NodeId, None]] = {}
        self._times = 1

    def __bool__(self) -> bool:
        return bool(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    def tell(self, node: NodeId, members: int) -> None:
        """There is news about `node` in a network of `members` nodes, ourselves included."""
        least = min(RETRANSMIT_LEAST, max(1, 2 * (members - 1)))
        self._times = max(least, math.ceil(RETRANSMIT * math.log10(members + 1)))
        self.drop(node)
        self._put(node, 0)
        if len(self._sent) > MAX_NEWS:
            self.drop(next(iter(self._by_sent[max(self._by_sent)])))

    def freshest(self, count: int) -> list[NodeId]:
        """Up to `count` nodes with news, what was sent least often first."""
        return list(itertools.islice(self._all(), count))

    def count_down(self, node: NodeId, by: int) -> None:
        """The news about `node` was sent to `by` nodes."""
        sent = self._sent[node] + by
        self.drop(node)
        if sent < self._times:
            self._put(node, sent)

    def drop(self, node: NodeId) -> None:
        """Nothing about `node` is worth telling any more."""
        sent = self._sent.pop(node, None)
        if sent is not None:
            same = self._by_sent[sent]
            del same[node]
            if not same:
                del self._by_sent[sent]

    def clear(self) -> None:
        """Nobody is there to be told."""
        self._sent.clear()
        self._by_sent.clear()

    def _put(self, node: NodeId, sent: int) -> None:
        self._sent[node] = sent
        self._by_sent.setdefault(sent, {})[node] = None

    def _all(self) -> Iterator[NodeId]:
        for sent in sorted(self._by_sent):
            yield from reversed(self._by_sent[sent])
