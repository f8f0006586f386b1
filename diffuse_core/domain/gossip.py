"""Gossip: how records and beliefs about nodes spread, as a state machine.

Records are signed. A new one is announced, epidemically (a few random nodes every 200 ms while
there is news), and sent to who asks for it; tables are compared by summaries now and then, so
that nobody misses anything for long. Beliefs (suspect, dead) are not signed: they travel as
rumours, count only from members and only about the very sequence that is known, and make the
receiver probe for itself. A node refutes what is said of it by publishing a later sequence; a
farewell is signed by the node that leaves.

The caller feeds `receive`, `tick` (by `next_deadline`), `met` and `unreachable`, and sends what
`drain` gives. All of it bounded; nothing a stranger sends changes what is known of others.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.announcing import Announcer
from diffuse_core.domain.clocks import NetworkClock
from diffuse_core.domain.directory import MAX_NODES
from diffuse_core.domain.exchange import Exchange, Outgoing, asks
from diffuse_core.domain.hearing import Hearing
from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.messages import (
    Ack,
    GossipMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Rumour,
    Summary,
    Want,
)
from diffuse_core.domain.narration import REBASED, TWIN
from diffuse_core.domain.publisher import Publisher
from diffuse_core.domain.rechecks import Rechecks
from diffuse_core.domain.roster import Roster, RosterCounts
from diffuse_core.domain.wants import Wants

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import Record, SignedRecord
    from diffuse_core.domain.verdicts import Verdicts
    from diffuse_core.domain.view import EventLevel

GOSSIP_INTERVAL_S = 0.2
SYNC_FIRST_S = 0.5
SYNC_INTERVAL_S = 10.0
EXPIRE_INTERVAL_S = 5.0
MAX_OUTBOX = 2048
MAX_EVENTS = 256
MAX_FAREWELLS = 64
TWIN_AGAIN_S = 600.0


class Gossip:
    """One node's part in the gossip.

    Args:
        identity: signs our own record.
        rng: chooses whom to talk to.
        boot_ms: Unix milliseconds of the process's start; orders our records after older ones.
        max_nodes: most nodes to know of, tombstones included.
        verdicts: what is known of records' contents; may be shared within a process.
    """

    def __init__(
        self,
        identity: Identity,
        rng: random.Random,
        *,
        boot_ms: int,
        max_nodes: int = MAX_NODES,
        verdicts: Verdicts | None = None,
    ) -> None:
        self._own = identity.node
        self._rng = rng
        self._clock = NetworkClock(boot_ms)
        self._roster = Roster(self._own, rng, max_nodes=max_nodes, verdicts=verdicts)
        self._publisher = Publisher(identity, boot_ms, self._roster.position)
        self._detector = self._roster.detector
        self._announcer = Announcer(self._own, self._roster)
        self._exchange = Exchange(self._roster, self._clock)
        self._wants = Wants()
        self._rechecks = Rechecks(rng)
        self._hearing = Hearing(self._own, self._roster, self._wants, self._rechecks)
        self._outbox: list[tuple[NodeId, Outgoing]] = []
        self._events: deque[tuple[EventLevel, str]] = deque(maxlen=MAX_EVENTS)
        self._contact: NodeId | None = None
        self._joining = False
        self._spread_at = -math.inf
        self._sync_pause = SYNC_FIRST_S
        self._sync_at = math.inf
        self._expire_at = math.inf
        self._now = -math.inf
        self._left = False
        self._twin_at = -math.inf

    # --- our own record --------------------------------------------------------------------

    def set_record(self, record: Record, now: float) -> Record:
        """This is what we say of ourselves; `node` and `sequence` are set here.

        It is signed and spread at once when it says something new, but a change of load alone,
        and too many changes in a row, wait for `tick`. Returns the record that stands.

        Raises:
            UsageError: it is out of bounds; what stood before stands on.
        """
        self._at(now)
        self._publisher.wish(record)
        self._publish_due(now)
        return self._publisher.standing or record

    def leave(self, now: float) -> None:
        """Say farewell: others drop us at once. After it nothing else is done or sent."""
        if self._publisher.standing is None or self._left:
            return
        self._at(now)
        self._publisher.wish_farewell(self._publisher.standing)
        farewell = Push(records=(self._publish(now),))
        self._left = True
        for node in self._detector.sample_live(MAX_FAREWELLS):
            self._send(node, farewell)

    # --- what is known ---------------------------------------------------------------------

    @property
    def counts(self) -> RosterCounts:
        """What was found and refused since the start."""
        return self._roster.counts()

    def members(self, now: float) -> tuple[Member, ...]:
        """All nodes but those that left, our own included, the dead for a minute more."""
        return self._roster.members(now)

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled, HOST:PORT each; none when unknown."""
        entry = self._roster.directory.get(node)
        return () if entry is None else entry.record.addresses

    # --- what happens ----------------------------------------------------------------------

    def receive(self, sender: NodeId, message: GossipMessage, now: float) -> None:
        """Take in one message of an authenticated sender. Never raises."""
        if sender == self._own or self._left:
            return
        self._at(now)
        self._roster.directory.meet(sender)
        self._detector.heard(sender, now)
        self._on_clock(sender, getattr(message, "clock", 0), now)
        self._reply(sender, *self._exchange.remind(sender, message, now))
        match message:
            case Ping():
                self._hear(sender, message.rumours, now)
                told = self._announcer.piggyback(sender), self._clock.wall_ms(now)
                self._send(sender, Ack(message.nonce, *told, self._roster.position.coordinate))
            case Ack():
                self._roster.answered(sender, message, now)
                self._hear(sender, message.rumours, now)
            case PingRequest():
                self._on_ping_request(sender, message, now)
            case Pull():
                self._on_pull(sender, message, now)
            case Summary():
                self._reply(sender, self._exchange.on_summary(sender, message, now))
            case Want():
                self._reply(sender, *self._exchange.on_want(sender, message, now))
            case _:
                self._on_push(sender, message, now)
        self._collect(now)

    def met(self, node: NodeId, now: float) -> None:
        """A channel with `node` exists: if we took it for dead, it gets to refute that."""
        self._at(now)
        self._roster.directory.meet(node)
        self._detector.heard(node, now, met=True)
        self._collect(now)

    def unreachable(self, node: NodeId, now: float) -> None:
        """Nothing can be delivered to `node`: no address, a refused dial or a broken channel.

        Counts as a failed direct probe; repeated, and with no other node reaching it either, it
        makes the node dead in about two seconds. A dial that merely timed out is no evidence.
        """
        self._at(now)
        self._detector.unreachable(node, now)
        self._collect(now)

    def pull_from(self, node: NodeId) -> None:
        """Introduce ourselves to `node` and compare what we know with it (push-pull join)."""
        self._contact = node
        self._joining = not self._detector.live_count()
        own = self._roster.directory.get(self._own)
        if own is not None:
            self._send(node, Push(records=(own.signed,)))
        self._send(node, self._exchange.compare(self._now, member=own is not None))

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._left:
            return
        self._at(now)
        self._detector.tick(now)
        self._recheck(now)
        self._collect(now)
        self._publish_due(now)
        for node, wanted in self._wants.overdue(now).items():
            self._reply(node, *asks(wanted))
        if self._announcer and now >= self._spread_at:
            self._spread_at = now + GOSSIP_INTERVAL_S
            for node, news in self._announcer.spread():
                self._send(node, news)
        if now >= self._sync_at:
            self._sync(now)
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_INTERVAL_S
            self._roster.expire(now)

    def next_deadline(self) -> float:
        """When `tick` has something to do, monotonic; inf when never."""
        if self._left:
            return math.inf
        return min(
            self._detector.next_deadline(),
            self._rechecks.next_deadline(),
            self._wants.next_deadline(),
            self._publisher.due_at(self._members(), self._now),
            self._spread_at if self._announcer else math.inf,
            self._sync_at,
            self._expire_at,
        )

    def drain(self) -> list[tuple[NodeId, Outgoing]]:
        """Take the messages to send, in order per receiver."""
        self._outbox.extend(self._exchange.drain(self._now))
        outbox, self._outbox = self._outbox, []
        return outbox

    def drain_events(self) -> list[tuple[EventLevel, str]]:
        """Take what happened, in words."""
        events, self._events = list(self._events), deque(maxlen=MAX_EVENTS)
        return events

    def drain_lost(self) -> list[NodeId]:
        """Take the nodes that were found dead: what led to them leads nowhere any more."""
        return self._roster.take_lost()

    def _at(self, now: float) -> None:
        self._now = now
        self._roster.latest = self._clock.latest(now)

    def _on_clock(self, sender: NodeId, clock_ms: int, now: float) -> None:
        """Later ones count from strangers, too: to slow nodes, a fast network consists of them."""
        if not clock_ms:
            return
        self._clock.told(sender, clock_ms, now, member=self._roster.is_member(sender))
        self._roster.latest = self._clock.latest(now)
        if self._publisher.rebase(self._clock.network_ms(now), self._roster.latest):
            self._events.append(REBASED)
            self._publish(now)

    # --- records ---------------------------------------------------------------------------

    def _members(self) -> int:
        return self._detector.live_count() + 1

    def _publish_due(self, now: float) -> bool:
        due = now >= self._publisher.due_at(self._members(), now)
        if due:
            self._publish(now)
        return due

    def _publish(self, now: float) -> SignedRecord:
        record, signed = self._publisher.publish(now)
        self._roster.publish(record, signed, now)
        self._tell_record(self._own, self._own, now)
        return signed

    def _on_push(self, sender: NodeId, message: Push, now: float) -> None:
        for signed in message.records:
            record = self._roster.directory.read(signed)
            if record is not None and record.node == self._own:
                self._on_own_record(sender, record, now)
            elif (news := self._roster.admit(signed, sender, now)) is not None:
                node, changed, lines = news
                self._events.extend(lines)
                self._wants.got(node, record.sequence if record else 0, sender, now)
                if changed and (sender == node or not self._joining):
                    self._tell_record(node, sender, now)
        if self._joining and message.records and message.last:
            # What we were told all others know; now that we know them, they shall know us.
            self._joining = False
            self._tell_record(self._own, self._own, now)
        if message.rumours:
            self._hear(sender, message.rumours, now)

    def _on_own_record(self, sender: NodeId, record: Record, now: float) -> None:
        """A record signed with our key: an earlier run's with a later clock, or a twin's.

        One from the network's future is what we said before our clock was found to be ahead.
        """
        self._wants.got(self._own, record.sequence, sender, now)
        if record.sequence <= self._roster.latest and self._publisher.answer(record):
            self._publish_due(now)
            if now >= self._twin_at:
                self._twin_at = now + TWIN_AGAIN_S
                self._events.append(TWIN)
        own = self._roster.directory.get(self._own)
        if own is not None and record.sequence < own.record.sequence:
            self._reply(sender, *self._exchange.show(sender, own.signed, now))

    # --- rumours ---------------------------------------------------------------------------

    def _hear(
        self, sender: NodeId, rumours: Iterable[Rumour], now: float, *, digest: bool = False
    ) -> None:
        """Ask for what we lack; refute what is false, or show the record that does so already."""
        heard = self._hearing.hear(sender, rumours, now, digest=digest)
        self._reply(sender, *asks(heard.ask))
        refuted = False
        if heard.accused:
            self._publisher.reassert()
            if refuted := self._publish_due(now):
                self._detector.ail()
        entry = self._roster.directory.get(self._own)
        if entry is not None and (refuted or heard.behind):
            self._reply(sender, *self._exchange.serve(sender, (entry.signed,), now))

    def _collect(self, now: float) -> None:
        """Carry over what the failure detector found and wants sent."""
        self._events.extend(self._roster.take_changes(now))
        self._rechecks.follow(self._roster.directory, self._detector.live_count(), now)
        for node in self._detector.drain_testimony():
            self._announcer.tell_belief(node)
            self._spread_at = max(self._spread_at, now)
        clock = self._clock.wall_ms(now)
        for to, step in self._detector.drain():
            if isinstance(step, PingRequest):
                self._send(to, step)
            else:
                rumours = self._announcer.piggyback(to)
                self._send(to, msgspec.structs.replace(step, rumours=rumours, clock=clock))

    def _tell_record(self, node: NodeId, sender: NodeId, now: float) -> None:
        self._announcer.tell_record(node, sender)
        self._spread_at = max(self._spread_at, now)
        if self._sync_at == math.inf:
            self._sync_at, self._expire_at = now + SYNC_FIRST_S, now + EXPIRE_INTERVAL_S

    def _sync(self, now: float) -> None:
        """Compare notes with a live node, soon after we joined and then now and then."""
        self._sync_at = now + self._sync_pause * (0.75 + self._rng.random() / 2)
        self._sync_pause = min(SYNC_INTERVAL_S, 2 * self._sync_pause)
        some = self._detector.sample_live(1)
        if some:
            self._send(some[0], self._exchange.compare(now, member=True))
        elif self._contact is not None:
            self.pull_from(self._contact)

    def _recheck(self, now: float) -> None:
        """Probe whom others hold for dead, and ping the dead, which may not be so."""
        for node in self._rechecks.doubted(now):
            self._detector.probe(node, now)
        live = self._detector.live_count()
        for node in self._rechecks.knock(self._roster.directory.dead, live, now):
            rumours = self._announcer.piggyback(node)
            self._send(node, Ping(self._rng.getrandbits(32), rumours, self._clock.wall_ms(now)))

    def _on_pull(self, sender: NodeId, message: Pull, now: float) -> None:
        self._hear(sender, message.digest, now, digest=True)
        self._reply(sender, self._exchange.on_pull(sender, message, now))

    def _on_ping_request(self, sender: NodeId, message: PingRequest, now: float) -> None:
        target = NodeId(message.target)
        if not self._roster.is_member(sender):
            return
        if target == self._own:
            self._send(sender, Ack(message.nonce))
        else:
            self._detector.relay(sender, message.nonce, target, now)

    def _reply(self, to: NodeId, *messages: Outgoing | None) -> None:
        for message in messages:
            if message is not None:
                self._send(to, message)

    def _send(self, to: NodeId, message: Outgoing) -> None:
        if len(self._outbox) < MAX_OUTBOX:
            self._outbox.append((to, message))
