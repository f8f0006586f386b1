"""The roster: what is known of every node, records and liveness together."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.allowances import Allowances
from diffuse_core.domain.coordinates import Position, between_s
from diffuse_core.domain.directory import Directory, Entry
from diffuse_core.domain.liveness import FailureDetector
from diffuse_core.domain.members import Member
from diffuse_core.domain.narration import Line, liveness_line, record_lines, two_faced_line
from diffuse_core.domain.reconcile import digest, lacking, observed, rumour_of
from diffuse_core.domain.records import MAX_SEQUENCE, record_node

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from diffuse_core.domain.directory import Admission
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import Ack, Pull, Rumour
    from diffuse_core.domain.records import Record, SignedRecord
    from diffuse_core.domain.verdicts import Verdicts
    from diffuse_core.domain.view import Liveness

DEAD_SHOWN_S = 60.0
"""How long a dead node stays in `members`; its tombstone stays longer."""
CROWDED = 0.75
"""Share of a full table from which on nobody may introduce many others."""
MAX_LOST = 256
INTRODUCTIONS = 16
INTRODUCTIONS_PER_S = 0.1


class RosterCounts(NamedTuple):
    """What was found since the start.

    `turns` are changes of what we think of nodes, by what that was then; `refusals` are records
    that were refused, by reason: what hostile or broken nodes sent. `probes_failed` are pings,
    ours and those of helpers, that nobody answered in time. `health` is that of LocalHealth now.
    """

    turns: Mapping[Liveness, int]
    refusals: Mapping[Admission, int]
    probes_failed: int
    health: int


class Roster:
    """The directory and the failure detector, kept in step.

    `latest` is the last sequence that does not lie in the future; records beyond it, which a
    clock that was wrong let in, are kept until better ones come and not told to others.
    """

    def __init__(
        self, own: NodeId, rng: random.Random, *, max_nodes: int, verdicts: Verdicts | None = None
    ) -> None:
        self._own = own
        self._crowd = int(CROWDED * max_nodes)
        self._introductions = Allowances(INTRODUCTIONS, INTRODUCTIONS_PER_S)
        self.latest = MAX_SEQUENCE
        self.turns: Counter[Liveness] = Counter()
        self._lost: deque[NodeId] = deque(maxlen=MAX_LOST)
        self.directory = Directory(rng, max_nodes=max_nodes, verdicts=verdicts)
        self.position = Position(own)
        self.detector = FailureDetector(own, rng, self._measured)

    def counts(self) -> RosterCounts:
        """What was found since the start."""
        detector = self.detector
        refusals = self.directory.refusals
        return RosterCounts(self.turns, refusals, detector.probes.failed, detector.health)

    def answered(self, node: NodeId, ack: Ack, now: float) -> None:
        """`node` answers a Ping, and says where it is now; its record may be of long ago."""
        if ack.place is not None and self.is_member(node):
            self.position.heard(node, ack.place)
        self.detector.ack(node, ack.nonce, now)

    def _measured(self, node: NodeId, rtt_s: float) -> None:
        """A direct ping of `node` took so long: that tells where we are, too."""
        entry = self.directory.get(node)
        self.position.measured(node, rtt_s, None if entry is None else entry.record.coordinate)

    def is_member(self, node: NodeId) -> bool:
        """Whether `node` published a record and did not say farewell."""
        entry = self.directory.get(node)
        return entry is not None and not entry.record.left

    def held(self, node: NodeId) -> int:
        """The sequence of the record of `node` that counts; -1 when there is none."""
        entry = self.directory.get(node)
        sequence = -1 if entry is None else entry.record.sequence
        return sequence if sequence <= self.latest else -1

    def liveness(self, node: NodeId) -> Liveness:
        """What we think of `node`."""
        return "alive" if node == self._own else self.detector.state(node)

    def stance(self, node: NodeId) -> Liveness:
        """What we say of `node` to others: only what we found ourselves."""
        return "alive" if node == self._own else self.detector.stance(node)

    def rumour(self, node: NodeId) -> Rumour | None:
        """Our stance on `node`; None when there is nothing to go by."""
        entry = self.directory.get(node)
        if entry is None or entry.record.sequence > self.latest:
            return None
        return rumour_of(node, entry, self.stance)

    def members(self, now: float) -> tuple[Member, ...]:
        """All nodes but those that left, our own included, the dead for DEAD_SHOWN_S."""
        here = self.position.coordinate
        return tuple(
            Member(
                record=entry.record,
                liveness=self.liveness(node),
                heard_at=now if node == self._own else self.detector.heard_at(node),
                rtt_s=self.detector.rtt(node),
                least_rtt_s=self.position.least_s(node),
                distance_s=between_s(here, entry.record.coordinate),
            )
            for node, entry in self.directory.items()
            if _shown(entry, now)
        )

    def publish(self, record: Record, signed: SignedRecord, now: float) -> None:
        """Put in our own record, whatever stood before."""
        self.directory.admit(signed, now, latest=record.sequence)
        self.directory.meet(self._own)
        self._drop_forgotten()

    def admit(
        self, signed: SignedRecord, sender: NodeId, now: float
    ) -> tuple[NodeId, bool, list[Line]] | None:
        """Merge another node's record that `sender` pushed.

        Returns:
            Whose it is, whether what we hold changed, and what there is to tell; None for a
            record that is not sound.
        """
        record = self.directory.read(signed)
        if record is None:
            self.directory.refuse("unsound")
            return None
        node = record_node(record)
        entry = self.directory.get(node)
        if entry is None and not self._may_introduce(sender, node, now):
            self.directory.refuse("full")
            return node, False, []
        old = None if entry is None or entry.record.left else entry.record
        warned = entry is not None and entry.two_faced
        outcome = self.directory.admit(signed, now, latest=self.latest)
        entry = self.directory.get(node)
        lines: list[Line] = []
        if outcome == "equivocation" and not warned:
            lines.append(two_faced_line(node))
        changed = outcome in ("new", "newer", "equivocation") and (
            entry is not None and entry.signed is signed
        )
        if changed:
            self._drop_forgotten()
            self._take(node, record, now)
            lines += record_lines(old, record)
        return node, changed, lines

    def _may_introduce(self, sender: NodeId, node: NodeId, now: float) -> bool:
        crowded = len(self.directory) >= self._crowd
        return not crowded or sender == node or self._introductions.spend(sender, 1.0, now)

    def _take(self, node: NodeId, record: Record, now: float) -> None:
        if record.left:
            self._forget(node)
        else:
            self.detector.alive(node, now)

    def expire(self, now: float) -> None:
        """Forget old tombstones."""
        self.directory.expire(now)
        self._drop_forgotten()

    def take_changes(self, now: float) -> list[Line]:
        """Carry over whom the failure detector found dead or alive; in words."""
        lines = []
        for node, liveness in self.detector.drain_changes():
            self.turns[liveness] += 1
            if liveness == "dead":
                self.directory.bury(node, now)
            else:
                self.directory.unearth(node)
            lines.append(liveness_line(node, liveness))
        self._lost.extend(self.detector.lost)
        self.detector.lost.clear()
        return lines

    def take_lost(self) -> list[NodeId]:
        """The nodes found dead since these were taken last; the newest, if there are many."""
        lost = list(self._lost)
        self._lost.clear()
        return lost

    def digest(self, buckets: bytes = b"") -> tuple[Rumour, ...]:
        """Everything known, or what falls in `buckets`, in short."""
        return digest(self.directory, self.stance, self.latest, buckets)

    def answer(self, node: NodeId, pull: Pull, now: float) -> list[tuple[Rumour, SignedRecord]]:
        """What a Pull of `node` asks for."""
        if not self.is_member(node):
            return observed(self.directory, self.liveness, lambda entry: _shown(entry, now))
        return lacking(node, pull, self.directory, self.stance, self.latest)

    def _drop_forgotten(self) -> None:
        for node in self.directory.drain_forgotten():
            self._forget(node)

    def _forget(self, node: NodeId) -> None:
        self.detector.forget(node)
        self.position.forget(node)


def _shown(entry: Entry, now: float) -> bool:
    if entry.gone_at is None:
        return True
    return not entry.record.left and now - entry.gone_at < DEAD_SHOWN_S
