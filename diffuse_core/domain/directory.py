"""The directory: the latest sound record of every node, and tombstones of those that went.

Merging looks at the record alone: the later sequence wins, of equal ones (which only a node with
two tongues signs) the greater hash. So records may arrive in any order, any number of times, from
anybody, and all directories come to agree.

Bounded. A full table makes room by the oldest tombstone, else by a node that was never met, that
is, never heard from directly: made-up nodes answer nobody, so they are found dead and go first.
What lies in the network's future is refused, and so are updates of one node that come too often;
both may come again later.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.allowances import Allowance
from diffuse_core.domain.buckets import Buckets
from diffuse_core.domain.pool import Pool
from diffuse_core.domain.records import MAX_SEQUENCE, Record, SignedRecord, record_node
from diffuse_core.domain.verdicts import Verdicts

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from diffuse_core.domain.identity import NodeId

MAX_NODES = 4096
TOMBSTONE_S = 7200.0
"""So long may a partition last and heal by itself."""
UPDATE_BURST = 8
UPDATES_PER_S = 1.0

Admission = Literal["new", "newer", "known", "unsound", "equivocation", "full", "future", "early"]
"""What became of a record. "new" and "newer" changed something, "equivocation" perhaps."""

_REFUSED = frozenset({"unsound", "equivocation", "full", "future", "early"})


@dataclass(slots=True)
class Entry:
    """One node. `gone_at` is when it was found dead or said farewell, monotonic."""

    signed: SignedRecord
    record: Record
    gone_at: float | None = None
    updates: Allowance | None = None
    two_faced: bool = False


class Directory:
    """Records by node id.

    Args:
        rng: chooses who makes room in a full table.
        max_nodes: its size, tombstones included.
        verdicts: what is known of contents; may be shared.

    `dead` are the nodes that went without a farewell and are not forgotten; `revived` counts how
    often one came back.
    """

    def __init__(
        self, rng: random.Random, *, max_nodes: int = MAX_NODES, verdicts: Verdicts | None = None
    ) -> None:
        self._rng = rng
        self._max_nodes = max_nodes
        self._entries: dict[NodeId, Entry] = {}
        self._verdicts = Verdicts() if verdicts is None else verdicts
        self._forgotten: list[NodeId] = []
        self._gone: OrderedDict[NodeId, float] = OrderedDict()
        self._unmet = Pool()
        self.dead = Pool()
        self.revived = 0
        self.buckets = Buckets()
        self.refusals: Counter[Admission] = Counter()

    def __contains__(self, node: NodeId) -> bool:
        return node in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, node: NodeId) -> Entry | None:
        """The entry of `node`."""
        return self._entries.get(node)

    def items(self) -> Iterator[tuple[NodeId, Entry]]:
        """All entries, in the order they came."""
        return iter(self._entries.items())

    def read(self, signed: SignedRecord) -> Record | None:
        """The record inside, verified once per content; None when it is not sound."""
        return self._verdicts.read(signed)

    def refuse(self, outcome: Admission) -> Admission:
        """Count a record that was not taken."""
        self.refusals[outcome] += 1
        return outcome

    def admit(self, signed: SignedRecord, now: float, *, latest: int = MAX_SEQUENCE) -> Admission:
        """Merge one record.

        Args:
            signed: as it came.
            now: monotonic seconds.
            latest: the last sequence that does not lie in the network's future.
        """
        outcome = self._admit(signed, now, latest)
        return self.refuse(outcome) if outcome in _REFUSED else outcome

    def _admit(self, signed: SignedRecord, now: float, latest: int) -> Admission:
        record = self.read(signed)
        if record is None:
            return "unsound"
        if record.sequence > latest:
            return "future"
        node = record_node(record)
        entry = self._entries.get(node)
        if entry is None:
            return self._add(node, signed, record, now)
        held = entry.record.sequence
        if signed.payload == entry.signed.payload or record.sequence < held <= latest:
            return "known"
        if record.sequence == held:
            entry.two_faced = True
            if _digest(signed) > _digest(entry.signed):
                self._replace(node, entry, signed, record, now)
            return "equivocation"
        if not self._timely(entry, record, now):
            return "early"
        self._replace(node, entry, signed, record, now)
        return "newer"

    def _add(self, node: NodeId, signed: SignedRecord, record: Record, now: float) -> Admission:
        if len(self._entries) >= self._max_nodes and not self._evict():
            return "full"
        entry = self._entries[node] = Entry(signed, record)
        self._unmet.add(node)
        self._place(node, entry, now if record.left else None)
        return "new"

    def _replace(
        self, node: NodeId, entry: Entry, signed: SignedRecord, record: Record, now: float
    ) -> None:
        entry.signed, entry.record = signed, record
        self._place(node, entry, now if record.left else None)

    @staticmethod
    def _timely(entry: Entry, record: Record, now: float) -> bool:
        """Whether the node may have an update already; a farewell is never too early."""
        if entry.updates is None:
            entry.updates = Allowance(UPDATE_BURST, UPDATES_PER_S)
        return entry.updates.spend(1.0, now) or (record.left and not entry.record.left)

    def _place(self, node: NodeId, entry: Entry, gone_at: float | None) -> None:
        """Put the entry among the living or the gone; only the former count in a summary."""
        entry.gone_at = gone_at
        self._gone.pop(node, None)
        if gone_at is None:
            self.revived += node in self.dead
            self.dead.discard(node)
            self.buckets.put(node, entry.record.sequence)
            return
        self.buckets.discard(node)
        self._gone[node] = gone_at
        if entry.record.left:
            self.dead.discard(node)
        else:
            self.dead.add(node)

    def meet(self, node: NodeId) -> None:
        """`node` itself was heard: it is not made up."""
        self._unmet.discard(node)

    def bury(self, node: NodeId, now: float) -> None:
        """`node` was found dead: what is left of it is a tombstone."""
        entry = self._entries.get(node)
        if entry is not None and entry.gone_at is None:
            self._place(node, entry, now)

    def unearth(self, node: NodeId) -> None:
        """`node` lives after all."""
        entry = self._entries.get(node)
        if entry is not None and not entry.record.left:
            self._place(node, entry, None)

    def expire(self, now: float) -> None:
        """Forget the tombstones that are old enough."""
        while self._gone:
            node, gone_at = next(iter(self._gone.items()))
            if now - gone_at < TOMBSTONE_S:
                return
            self._forget(node)

    def drain_forgotten(self) -> list[NodeId]:
        """Take the nodes that were forgotten, by age or to make room."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def _forget(self, node: NodeId) -> None:
        del self._entries[node]
        self._gone.pop(node, None)
        self.dead.discard(node)
        self._unmet.discard(node)
        self.buckets.discard(node)
        self._forgotten.append(node)

    def _evict(self) -> bool:
        """Make room: by the oldest tombstone, else by anyone who was never met."""
        if self._gone:
            self._forget(next(iter(self._gone)))
            return True
        unmet = self._unmet.sample(self._rng, 1)
        for node in unmet:
            self._forget(node)
        return bool(unmet)


def _digest(signed: SignedRecord) -> bytes:
    return hashlib.sha256(signed.payload).digest()
