"""The roster: what is known of every node, records and liveness together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.directory import Directory, Entry
from diffuse_core.domain.liveness import FailureDetector
from diffuse_core.domain.members import Member
from diffuse_core.domain.messages import Rumour
from diffuse_core.domain.narration import Line, liveness_line, record_lines
from diffuse_core.domain.reconcile import answer_member, answer_observer, digest
from diffuse_core.domain.records import record_node

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import Push
    from diffuse_core.domain.records import SignedRecord
    from diffuse_core.domain.view import Liveness

DEAD_SHOWN_S = 60.0
"""How long a dead node stays in `members`; its tombstone stays longer."""


class Roster:
    """The directory and the failure detector, kept in step."""

    def __init__(self, own: NodeId, rng: random.Random) -> None:
        self._own = own
        self.directory = Directory()
        self.detector = FailureDetector(own, rng)

    def own(self) -> Entry | None:
        """Our own entry, None before the first record is published."""
        return self.directory.get(self._own)

    def is_member(self, node: NodeId) -> bool:
        """Whether `node` published a record and did not say farewell."""
        entry = self.directory.get(node)
        return entry is not None and not entry.record.left

    def liveness(self, node: NodeId) -> Liveness:
        """What we think of `node`."""
        return "alive" if node == self._own else self.detector.state(node)

    def stance(self, node: NodeId) -> Liveness:
        """What we say of `node` to others: only what we found ourselves."""
        return "alive" if node == self._own else self.detector.stance(node)

    def rumour(self, node: NodeId, *, to: NodeId | None = None) -> Rumour | None:
        """Our stance on `node`; told `to` itself, all that we think, so that it can refute it."""
        entry = self.directory.get(node)
        if entry is None:
            return None
        liveness = self.liveness(node) if node == to else self.stance(node)
        return Rumour(node, entry.record.sequence, liveness)

    def members(self, now: float) -> tuple[Member, ...]:
        """All nodes but those that left, our own included, the dead for DEAD_SHOWN_S."""
        return tuple(
            Member(
                record=entry.record,
                liveness=self.liveness(node),
                heard_at=now if node == self._own else self.detector.heard_at(node),
                rtt_s=self.detector.rtt(node),
            )
            for node, entry in self.directory.items()
            if _shown(entry, now)
        )

    def dead(self) -> list[NodeId]:
        """Nodes that went without a farewell and are not forgotten yet."""
        return [
            node
            for node, entry in self.directory.items()
            if entry.gone_at is not None and not entry.record.left
        ]

    def admit(self, signed: SignedRecord, now: float) -> tuple[NodeId, list[Line]] | None:
        """Merge another node's record: whose it is and what it tells, or None for no change."""
        record = self.directory.read(signed)
        entry = None if record is None else self.directory.get(record_node(record))
        old = None if entry is None or entry.record.left else entry.record
        if self.directory.admit(signed, now) not in ("new", "newer") or record is None:
            return None
        self._drop_forgotten()
        node = record_node(record)
        if record.left:
            self.detector.forget(node)
        else:
            self.detector.alive(node, now)
        return node, record_lines(old, record)

    def expire(self, now: float) -> None:
        """Forget old tombstones."""
        self.directory.expire(now)
        self._drop_forgotten()

    def take_changes(self, now: float) -> list[Line]:
        """Carry over whom the failure detector found dead or alive; in words."""
        lines = []
        for node, liveness in self.detector.drain_changes():
            if liveness == "dead":
                self.directory.bury(node, now)
            else:
                self.directory.unearth(node)
            lines.append(liveness_line(node, liveness))
        return lines

    def digest(self) -> tuple[Rumour, ...]:
        """Everything known, in short."""
        return digest(self.directory, self.stance)

    def answer(self, node: NodeId, theirs: Sequence[Rumour], now: float) -> Iterator[Push]:
        """The Pushes that answer a Pull of `node` with the digest `theirs`."""
        if not self.is_member(node):
            return answer_observer(self.directory, self.liveness, lambda entry: _shown(entry, now))

        def stance(about: NodeId) -> Liveness:
            return self.liveness(about) if about == node else self.stance(about)

        return answer_member(theirs, self.directory, stance)

    def _drop_forgotten(self) -> None:
        for node in self.directory.drain_forgotten():
            self.detector.forget(node)


def _shown(entry: Entry, now: float) -> bool:
    if entry.gone_at is None:
        return True
    return not entry.record.left and now - entry.gone_at < DEAD_SHOWN_S
