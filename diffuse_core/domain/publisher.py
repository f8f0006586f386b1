"""The publisher: our own record, when it goes out and under which sequence.

Sequences rise within a run, and over runs as long as the clock does. Others take only so many
updates of one node per time, so we send fewer and keep the latest draft meanwhile. A change of
load alone is not urgent: the larger the network, the longer it waits, so that all load reports
together stay as many, however many nodes there are. Where we are goes with every record. It has
one of its own only when it is another place, less and less often: while a node finds its place it
moves much and often, and whoever pings it hears of that at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.domain.allowances import Allowance
from diffuse_core.domain.coordinates import moved
from diffuse_core.domain.records import (
    Record,
    acceptable,
    first_sequence,
    seal,
)
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.coordinates import Coordinate, Position
    from diffuse_core.domain.identity import Identity
    from diffuse_core.domain.records import Load, SignedRecord

PUBLISH_BURST = 6
PUBLISHES_PER_S = 0.8
"""Both below what a Directory takes, since delays bunch updates together."""
REASSERT_INTERVAL_S = 0.2
REASSERT_BURST = 3
REASSERTS_PER_S = 0.25
"""How often what others say of us is answered; a suspicion lasts longer than the pause."""
LOAD_INTERVAL_S = 2.0
SESSIONS_INTERVAL_S = 0.5
"""Routes are chosen by how many Sessions a Host runs: in a small network that is soon told."""
KEPT_FOR_NEWS = 3.0
"""Of PUBLISH_BURST, what load leaves to that which cannot wait."""
LOADS_PER_S = 10.0
"""Load reports of all nodes together that a network has to carry."""
LOAD_CHANGE = 0.2
MOVE_INTERVAL_S = 10.0
"""The pause before a record that tells of nothing but a place; each doubles the next one."""
MOVE_DOUBLED_MOST = 16
MOVES_PER_S = 0.5
"""Such records of all nodes together, at most. One costs every node some 1.5 kB, as much as it
sends in four seconds when it is idle."""


_Urgency = Literal["none", "later", "soon", "now"]


class Publisher:
    """Drafts in, signed records out.

    Args:
        identity: signs.
        boot_ms: Unix time in milliseconds when the process started.
        position: where we are, which every record tells.
    """

    def __init__(self, identity: Identity, boot_ms: int, position: Position | None = None) -> None:
        self._identity = identity
        self._position = position
        self._published_at = -math.inf
        self._move_doubled = 1
        # Ids are as good as random: nodes that started together do not all tell at once.
        self._turn = identity.node[0] / 256
        self._next = first_sequence(boot_ms)
        self._standing: Record | None = None
        self._draft: Record | None = None
        self._again = False
        self._urgency: _Urgency = "none"
        self._publishes = Allowance(PUBLISH_BURST, PUBLISHES_PER_S)
        self._reasserts = Allowance(REASSERT_BURST, REASSERTS_PER_S)
        self._reassert_at = -math.inf
        self._load_at = -math.inf

    @property
    def standing(self) -> Record | None:
        """The record that was published last."""
        return self._standing

    def wish(self, record: Record) -> None:
        """This is what our record shall say; `node` and `sequence` are set here.

        Raises:
            UsageError: it is out of bounds, so that no one would accept it.
        """
        draft = msgspec.structs.replace(record, node=self._identity.node, sequence=self._next)
        if not acceptable(draft):
            raise UsageError(
                "this node's record is too large or out of bounds to be published; "
                "use fewer or shorter addresses, or a shorter model name"
            )
        self._draft = draft
        self._urgency = _urgency(self._standing, draft)

    def wish_farewell(self, standing: Record) -> None:
        """Our record shall say that we go."""
        holding = standing.holding
        if holding is not None:
            holding = msgspec.structs.replace(holding, state="leaving")
        self.wish(msgspec.structs.replace(standing, holding=holding, left=True))

    def reassert(self) -> None:
        """Something false is said of the record that stands: it needs a later sequence."""
        self._again = self._standing is not None

    def outrank(self, sequence: int) -> None:
        """A record of ours with this sequence is known elsewhere: go above it."""
        self._next = max(self._next, sequence + 1)

    def answer(self, record: Record) -> bool:
        """Go above a record with our signature that this run did not publish.

        Only those count that stand against ours: of a later sequence, or of the same one but
        different. Returns whether it contradicts a record that we did publish.
        """
        standing = self._standing
        if standing is not None and (record.sequence < standing.sequence or record == standing):
            return False
        self.outrank(record.sequence)
        self.reassert()
        return standing is not None

    def rebase(self, network_ms: int, latest: int) -> bool:
        """Begin anew at the network's time when our sequence lies in its future; whether it did.

        Nobody took the record that stands then, and nobody takes the next one.
        """
        standing = self._standing
        if standing is None or standing.sequence <= latest:
            return False
        self._next = first_sequence(network_ms)
        return True

    def due_at(self, members: int, now: float) -> float:
        """When `publish` should be called; inf for never. `members` is the network's size."""
        if self._standing is None:
            return now if self._draft is not None else math.inf
        when = math.inf
        if self._urgency == "now":
            when = now
        elif self._urgency != "none":
            pause = SESSIONS_INTERVAL_S if self._urgency == "soon" else LOAD_INTERVAL_S
            when = self._load_at + max(pause, members / LOADS_PER_S)
            when = max(when, self._publishes.ready_at(KEPT_FOR_NEWS, now))
        elif moved(self._standing.coordinate, self._coordinate()):
            pause = max(MOVE_INTERVAL_S, self._turn * members / MOVES_PER_S)
            when = self._published_at + pause * self._move_doubled
        if self._again:
            when = min(when, max(self._reassert_at, self._reasserts.ready_at(1.0, now)))
        return when if when == math.inf else max(when, self._publishes.ready_at(1.0, now))

    def publish(self, now: float) -> tuple[Record, SignedRecord]:
        """Sign the draft under the next sequence. Only after `wish`."""
        if self._draft is None:
            raise ValueError("there is no draft to publish; call wish first")
        record = msgspec.structs.replace(
            self._draft, sequence=self._next, coordinate=self._coordinate()
        )
        if self._standing is None or self._standing.load != record.load:
            self._load_at = now if self._standing is not None else -math.inf
        if self._again:
            self._again = False
            self._reasserts.spend(1.0, now)
            self._reassert_at = now + REASSERT_INTERVAL_S
        elif self._urgency == "none":
            self._move_doubled = min(MOVE_DOUBLED_MOST, 2 * self._move_doubled)
        self._publishes.spend(1.0, now)
        self._published_at = now
        self._next += 1
        self._standing = record
        self._urgency = "none"
        return record, seal(record, self._identity)

    def _coordinate(self) -> Coordinate | None:
        return None if self._position is None else self._position.coordinate


def _urgency(standing: Record | None, draft: Record) -> _Urgency:
    """Whether `draft` is worth a record at once, in its turn, or not at all."""
    if standing is None:
        return "now"
    same = msgspec.structs.replace(
        draft, sequence=standing.sequence, load=standing.load, coordinate=standing.coordinate
    )
    if same != standing:
        return "now"
    if draft.load.sessions != standing.load.sessions:
        return "soon"
    return "later" if _matters(standing.load, draft.load) else "none"


def _matters(old: Load, new: Load) -> bool:
    """Whether the difference is worth a record: some figure changed by a fifth."""
    figures = (
        (old.kv_used, new.kv_used),
        (old.kv_budget, new.kv_budget),
        (old.tokens_per_s, new.tokens_per_s),
        (old.step_ms, new.step_ms),
        (old.wait_ms, new.wait_ms),
    )
    return any(abs(after - before) > LOAD_CHANGE * max(before, after) for before, after in figures)
