"""The directory: the latest sound record of every node, and tombstones of those that went.

Merging is by sequence alone, so records may arrive in any order, any number of times, from
anybody. Bounded: a flood of made-up nodes can fill what is free, never push out a live node.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.records import (
    MAX_RECORD_BYTES,
    Record,
    SignedRecord,
    open_record,
    record_node,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.identity import NodeId

MAX_NODES = 4096
MAX_VERDICTS = 8192
TOMBSTONE_S = 600.0

Admission = Literal["new", "newer", "known", "unsound", "equivocation", "full"]
"""What became of a record. Only "new" and "newer" changed anything."""


@dataclass
class Entry:
    """One node. `gone_at` is when it was found dead or said farewell, monotonic."""

    signed: SignedRecord
    record: Record
    gone_at: float | None = None


class Directory:
    """Records by node id."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._entries: dict[NodeId, Entry] = {}
        self._verdicts: OrderedDict[bytes, Record | None] = OrderedDict()
        self._forgotten: list[NodeId] = []
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
        if len(signed.payload) > MAX_RECORD_BYTES:
            return None
        key = hashlib.sha256(signed.signature + signed.payload).digest()
        if key in self._verdicts:
            self._verdicts.move_to_end(key)
            return self._verdicts[key]
        record = open_record(signed)
        self._verdicts[key] = record
        if len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        return record

    def admit(self, signed: SignedRecord, now: float) -> Admission:
        """Merge one record; later sequences win, the first of equal ones stays."""
        outcome = self._admit(signed, now)
        if outcome in ("unsound", "equivocation", "full"):
            self.refusals[outcome] += 1
        return outcome

    def _admit(self, signed: SignedRecord, now: float) -> Admission:
        record = self.read(signed)
        if record is None:
            return "unsound"
        node = record_node(record)
        entry = self._entries.get(node)
        if entry is None:
            if len(self._entries) >= self._max_nodes and not self._evict():
                return "full"
            self._entries[node] = Entry(signed, record, now if record.left else None)
            return "new"
        if record.sequence < entry.record.sequence or signed == entry.signed:
            return "known"
        if record.sequence == entry.record.sequence:
            same = signed.payload == entry.signed.payload
            return "known" if same else "equivocation"
        entry.signed, entry.record = signed, record
        entry.gone_at = now if record.left else None
        return "newer"

    def bury(self, node: NodeId, now: float) -> None:
        """`node` was found dead: what is left of it is a tombstone."""
        entry = self._entries.get(node)
        if entry is not None and entry.gone_at is None:
            entry.gone_at = now

    def unearth(self, node: NodeId) -> None:
        """`node` lives after all."""
        entry = self._entries.get(node)
        if entry is not None and not entry.record.left:
            entry.gone_at = None

    def expire(self, now: float) -> None:
        """Forget the tombstones that are old enough."""
        for node, entry in list(self._entries.items()):
            if entry.gone_at is not None and now - entry.gone_at >= TOMBSTONE_S:
                self._forget(node)

    def drain_forgotten(self) -> list[NodeId]:
        """Take the nodes that were forgotten, by age or to make room."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def _forget(self, node: NodeId) -> None:
        del self._entries[node]
        self._forgotten.append(node)

    def _evict(self) -> bool:
        """Make room by forgetting the oldest tombstone."""
        gone = [
            (entry.gone_at, node)
            for node, entry in self._entries.items()
            if entry.gone_at is not None
        ]
        if gone:
            self._forget(min(gone)[1])
        return bool(gone)
