"""Exchange: how tables are compared, and what others may ask of us.

Small tables are compared by digests, larger ones first by summaries: who gets one that differs
from its own answers with a digest of those buckets only, and then each asks for what it lacks.
All answers are bounded per node and time, so that nobody makes us send much by asking often. Who
only looks, and asks too often or while too many do, is told so at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.allowances import Allowance, Allowances
from diffuse_core.domain.buckets import different
from diffuse_core.domain.directory import MAX_NODES
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import (
    MAX_WANT,
    GossipMessage,
    Pull,
    Push,
    Summary,
    Want,
)
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.reconcile import RUMOUR_BYTES, pushes, weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diffuse_core.domain.clocks import NetworkClock
    from diffuse_core.domain.records import SignedRecord
    from diffuse_core.domain.roster import Roster

PLAIN_SYNC = 64
"""Up to so many nodes a digest is as small as a summary."""
MAX_ANSWERS = 64
SYNCS = (8, 1.0)
"""Digests that one member may ask of us: at once, and per second."""
SERVED = (2 * MAX_NODES, 64.0)
"""Records that one node may ask of us, likewise."""
LOOKS = (8, 0.4)
"""Looks at all we know that one who is no member may have, likewise."""
SHOWN = (96 * 2**20, 4.0 * 2**20)
"""Bytes for all of those together, likewise. Far more than the looks of one, but ids are free."""
REMINDERS = (4, 0.5)
"""Single records shown unasked to one node that does not know them, likewise."""
BUSY = NotAllowed("busy: too many ask what this node knows; ask again in a few seconds")

Outgoing = GossipMessage | NotAllowed


class Exchange:
    """Questions and answers about whole tables."""

    def __init__(self, roster: Roster, clock: NetworkClock) -> None:
        self._roster = roster
        self._clock = clock
        self._pulls: dict[NodeId, Pull] = {}
        self._syncs = Allowances(*SYNCS)
        self._served = Allowances(*SERVED)
        self._looks = Allowances(*LOOKS)
        self._shown = Allowance(*SHOWN)
        self._reminders = Allowances(*REMINDERS)

    def compare(self, now: float, *, member: bool) -> Pull | Summary:
        """What to send to a node whose table is to be compared with ours; it answers.

        `member` says whether we are one: others only look.
        """
        clock = self._clock.wall_ms(now) if member else 0
        if len(self._roster.directory) <= PLAIN_SYNC or not member:
            return Pull(self._roster.digest(), reply=member, clock=clock)
        return Summary(self._roster.directory.buckets.summary(), clock)

    def on_summary(self, sender: NodeId, message: Summary, now: float) -> Pull | Push | None:
        """A digest of what differs; that nothing does is an answer, too."""
        if not self._roster.is_member(sender) or not self._syncs.spend(sender, 1.0, now):
            return None
        buckets = different(self._roster.directory.buckets.summary(), message.hashes)
        if not buckets:
            return Push()
        digest = self._roster.digest(buckets)
        return Pull(digest, clock=self._clock.wall_ms(now), buckets=buckets)

    def on_pull(self, sender: NodeId, message: Pull, now: float) -> Pull | NotAllowed | None:
        """Note a Pull, to be answered by `drain`; and what to pull in return."""
        if sender not in self._pulls and len(self._pulls) >= MAX_ANSWERS:
            return BUSY if _looks(message) else None
        if self._roster.is_member(sender) and not self._syncs.spend(sender, 1.0, now):
            return None
        self._pulls[sender] = message
        if not message.reply:
            return None
        return Pull(self._roster.digest(), clock=self._clock.wall_ms(now))

    def on_want(self, sender: NodeId, message: Want, now: float) -> Iterable[Push]:
        """The records that a member wants, as far as we hold them."""
        nodes = [NodeId(node) for node in message.nodes]
        entries = [self._roster.directory.get(node) for node in nodes if self._holds(node)]
        records = [entry.signed for entry in entries if entry is not None]
        if not records or not self._roster.is_member(sender):
            return ()
        return self.serve(sender, records, now)

    def serve(self, node: NodeId, records: Sequence[SignedRecord], now: float) -> Iterable[Push]:
        """Push `records` to `node`, unless it had more than its share lately."""
        return pushes(records) if self._served.spend(node, len(records), now) else ()

    def remind(self, node: NodeId, message: GossipMessage, now: float) -> Iterable[Push]:
        """What we hold of `node`, when by its own message it does not know that.

        It shows an earlier record of itself, or has left by what we hold, and who left is silent.
        Then what we hold comes of another process with its key, or of an earlier run, and hides
        it until it goes above that; as one that left it is told nothing else.
        """
        entry = self._roster.directory.get(node)
        if entry is None or not self._holds(node):
            return ()
        if isinstance(message, Push):
            found = map(self._roster.directory.read, message.records)
            shown = [record.sequence for record in found if record and record.node == node]
            unaware = bool(shown) and max(shown) < entry.record.sequence
        else:
            unaware = entry.record.left
        return self.show(node, entry.signed, now) if unaware else ()

    def show(self, node: NodeId, signed: SignedRecord, now: float) -> Iterable[Push]:
        """One record that `node` did not ask for; it is no answer to a Pull."""
        if not self._reminders.spend(node, 1.0, now):
            return ()
        return (Push(records=(signed,), last=False),)

    def drain(self, now: float) -> Iterator[tuple[NodeId, Push | NotAllowed]]:
        """The answers to all Pulls since the last call."""
        pulls, self._pulls = self._pulls, {}
        for node, pull in pulls.items():
            for answer in self._answer(node, pull, now):
                yield node, answer

    def _answer(self, node: NodeId, pull: Pull, now: float) -> Iterable[Push | NotAllowed]:
        """Records, or for a Pull of some buckets announcements, which cost little."""
        if not self._roster.is_member(node):
            return self._show(node, pull, now)
        found = self._roster.answer(node, pull, now)
        if pull.buckets:
            return (Push(rumours=tuple(rumour for rumour, _ in found)),)
        return self.serve(node, [signed for _, signed in found], now)

    def _show(self, node: NodeId, pull: Pull, now: float) -> Iterable[Push | NotAllowed]:
        """All that is shown to `node`, which is no member, or that we are busy."""
        if self._looks.spend(node, 1.0, now):
            found = self._roster.answer(node, pull, now)
            size = sum(weight(signed) + RUMOUR_BYTES for _, signed in found)
            if self._shown.spend(size, now):
                return pushes([one for _, one in found], tuple(rumour for rumour, _ in found))
        return (BUSY,) if _looks(pull) else ()

    def _holds(self, node: NodeId) -> bool:
        return self._roster.held(node) >= 0


def asks(nodes: Sequence[NodeId]) -> Iterator[Want]:
    """Wants for the records of `nodes`."""
    for at in range(0, len(nodes), MAX_WANT):
        yield Want(tuple(nodes[at : at + MAX_WANT]))


def _looks(pull: Pull) -> bool:
    """Whether it comes of somebody who only looks: nodes tell their clock."""
    return not pull.clock
