"""The news queue: about which nodes there is something to spread, and how often still."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.identity import NodeId

RETRANSMIT = 4
"""Times per decade of members that a node passes on each piece of news (memberlist)."""


class News(msgspec.Struct):
    """Something about a node, to be sent `left` more times, with or without its record."""

    left: int
    with_record: bool


class NewsQueue:
    """At most one piece of news per node; the latest is sent first."""

    def __init__(self) -> None:
        self._news: dict[NodeId, News] = {}

    def __bool__(self) -> bool:
        return bool(self._news)

    def tell(self, node: NodeId, members: int, *, with_record: bool) -> None:
        """There is news about `node` in a network of `members` nodes, ourselves included."""
        times = RETRANSMIT * math.ceil(math.log10(members + 1))
        before = self._news.pop(node, None)
        keep = before is not None and before.with_record
        self._news[node] = News(times, with_record or keep)

    def freshest(self) -> Iterator[tuple[NodeId, News]]:
        """All news, what was sent least often first; safe to count down meanwhile."""
        return iter(sorted(self._news.items(), key=lambda item: -item[1].left))

    def count_down(self, node: NodeId, by: int) -> None:
        """The news about `node` was sent to `by` nodes."""
        news = self._news[node]
        news.left -= by
        if news.left <= 0:
            del self._news[node]

    def drop(self, node: NodeId) -> None:
        """Nothing about `node` is worth telling any more."""
        self._news.pop(node, None)

    def clear(self) -> None:
        """Nobody is there to be told."""
        self._news.clear()
