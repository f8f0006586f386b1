"""Announcing: what goes out by itself: announcements of new records, and beliefs.

Lazy push: a node's own new record goes out in full, to the first few. Everybody else says which
sequence it holds, and who lacks it asks for it, so that a record of some 800 bytes reaches each
node about once, however often it is announced. In a large network those first few are more, and
pass it on in full as well: few of the many hold it yet, so hardly any gets it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.messages import Push, Rumour
from diffuse_core.domain.newsqueue import NewsQueue

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.roster import Roster

FANOUT = 4
FIRST_SHARE = 1 / 16
FIRST_MOST = 16
"""To how many a node's own new record goes in full: this share of all, between FANOUT and this."""
MANY = 512
"""From so many live nodes on, they pass it on in full."""
MAX_PIGGYBACK = 16
MAX_ANNOUNCED = 128
MAX_FULL = 16


class Announcer:
    """News about records, and about liveness, each spread a number of times."""

    def __init__(self, own: NodeId, roster: Roster) -> None:
        self._own = own
        self._roster = roster
        self._records = NewsQueue()
        self._beliefs = NewsQueue()
        self._full: dict[NodeId, None] = {}

    def __bool__(self) -> bool:
        return bool(self._records) or bool(self._beliefs)

    def tell_record(self, node: NodeId, sender: NodeId) -> None:
        """We hold a new record of `node`; it came from `sender`, perhaps the node itself."""
        live = self._roster.detector.live_count()
        self._records.tell(node, live + 1)
        first_hand = sender == node and live >= MANY and len(self._full) < MAX_FULL
        if node == self._own or first_hand:
            self._full[node] = None

    def tell_belief(self, node: NodeId) -> None:
        """We found something out about `node`."""
        self._beliefs.tell(node, self._roster.detector.live_count() + 1)

    def piggyback(self, to: NodeId) -> tuple[Rumour, ...]:
        """A few beliefs for a Ping or an Ack; what we think ill of the receiver always."""
        if not self._roster.is_member(to):
            return ()
        rumours: list[Rumour] = []
        of_receiver = self._roster.rumour(to)
        if of_receiver is not None and of_receiver.liveness != "alive":
            rumours.append(of_receiver)
        for node in self._beliefs.freshest(MAX_PIGGYBACK - len(rumours)):
            rumour = self._roster.rumour(node)
            if rumour is None or rumour.liveness == "alive":
                self._beliefs.drop(node)
            elif node != to:
                rumours.append(rumour)
                self._beliefs.count_down(node, 1)
        return tuple(rumours)

    def spread(self) -> list[tuple[NodeId, Push]]:
        """One round: the freshest news, to a few random nodes."""
        detector = self._roster.detector
        full, self._full = self._full, {}
        share = int(detector.live_count() * FIRST_SHARE) if self._own in full else 0
        targets = detector.sample_live(max(FANOUT, min(FIRST_MOST, share)))
        if not targets:
            # Whoever comes first is told everything by its Pull.
            self._records.clear()
            self._beliefs.clear()
            return []
        entries = [entry for node in full if (entry := self._roster.directory.get(node))]
        records = tuple(entry.signed for entry in entries)
        push = Push(records=records, rumours=self._rumours(min(FANOUT, len(targets))))
        return [(target, push) for target in targets] if push.records or push.rumours else []

    def _rumours(self, targets: int) -> tuple[Rumour, ...]:
        rumours: dict[bytes, Rumour] = {}
        for queue, ill in ((self._beliefs, True), (self._records, False)):
            for node in queue.freshest(MAX_ANNOUNCED - len(rumours)):
                rumour = self._roster.rumour(node)
                if rumour is None or (ill and rumour.liveness == "alive"):
                    queue.drop(node)
                    continue
                queue.count_down(node, targets)
                rumours[node] = rumour
        return tuple(rumours.values())
