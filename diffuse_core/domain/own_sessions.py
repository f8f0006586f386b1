"""Own Sessions: what a Client has placed on Hosts that their records may not tell of yet.

Records are seconds old. A Client that goes by them alone sends all that it starts within these
seconds to the same Hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import Record

LAG_S = 0.5
"""A record that we saw for the first time need not tell of what was placed so shortly before."""
MAX_SEEN = 4096


class OwnSessions:
    """The Sessions of one Client: which Hosts each runs on, and since when."""

    def __init__(self) -> None:
        self._held: dict[Hashable, dict[NodeId, float]] = {}
        self._seen: dict[NodeId, tuple[int, float]] = {}

    def hold(self, key: Hashable, nodes: Iterable[NodeId], now: float) -> None:
        """The Session `key` runs on these nodes from now on, and on no others.

        Nodes that it ran on before count from when they were chosen.
        """
        before = self._held.get(key, {})
        self._held[key] = {node: before.get(node, now) for node in nodes}

    def drop(self, key: Hashable) -> None:
        """The Session ended; idempotent."""
        self._held.pop(key, None)

    def count(self, node: NodeId) -> int:
        """How many Sessions of ours run on `node`."""
        return sum(node in since for since in self._held.values())

    def estimate(self, node: NodeId, record: Record, now: float) -> int:
        """How many Sessions `node` runs: those its record tells of, and ours placed since."""
        sequence, seen_at = self._seen.get(node, (-1, now))
        if record.sequence != sequence:
            seen_at = now
            self._seen.pop(node, None)
            self._seen[node] = (record.sequence, now)
            forget_oldest(self._seen, MAX_SEEN)
        ours = [since[node] for since in self._held.values() if node in since]
        later = sum(since >= seen_at - LAG_S for since in ours)
        return max(record.load.sessions + later, len(ours))
