"""Gossip: how records and beliefs about nodes spread, as a state machine.

Records are signed and travel in Pushes, epidemically (a few random nodes every 200 ms while there
is news) and by push-pull of digests. Beliefs (suspect, dead) are not signed: they travel as
rumours, count only from members and only about the very sequence that is known, and make the
receiver probe for itself. A node refutes what is said of it by publishing a later sequence; a
farewell is signed by the node that leaves.

The caller feeds `receive`, `tick` (by `next_deadline`), `met` and `unreachable`, and sends what
`drain` gives. All of it bounded; nothing a stranger sends changes what is known of others.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.messages import (
    MAX_PUSH,
    Ack,
    GossipMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Rumour,
)
from diffuse_core.domain.newsqueue import NewsQueue
from diffuse_core.domain.records import Record, SignedRecord, first_sequence, seal
from diffuse_core.domain.roster import Roster
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from diffuse_core.domain.directory import Admission, Entry
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.view import EventLevel

FANOUT = 3
GOSSIP_INTERVAL_S = 0.2
SYNC_INTERVAL_S = 10.0
SYNC_SCALE_FROM = 32
WANT_INTERVAL_S = 0.5
EXPIRE_INTERVAL_S = 5.0
REASSERT_INTERVAL_S = 0.2
"""At most this often is what others say of us answered with a new sequence."""
MAX_PIGGYBACK = 16
MAX_SPREAD_BYTES = 32 * 2**10
MAX_OUTBOX = 2048
MAX_ANSWERS = 64
MAX_EVENTS = 256
MAX_FAREWELLS = 64


_TWIN = (
    "a record of this node that this process never published is going around: the clock went "
    "back, or another process runs with the same identity (give it its own --state-dir)"
)


class Gossip:
    """One node's part in the gossip.

    Args:
        identity: signs our own record.
        rng: chooses whom to talk to.
        boot_ms: Unix time in milliseconds when the process started; orders our records after
            those of earlier runs.
    """

    def __init__(self, identity: Identity, rng: random.Random, *, boot_ms: int) -> None:
        self._identity = identity
        self._own = identity.node
        self._rng = rng
        self._sequence = first_sequence(boot_ms)
        self._roster = Roster(self._own, rng)
        self._detector = self._roster.detector
        self._news = NewsQueue()
        self._outbox: list[tuple[NodeId, GossipMessage]] = []
        self._answers: dict[NodeId, tuple[Rumour, ...]] = {}
        self._events: deque[tuple[EventLevel, str]] = deque(maxlen=MAX_EVENTS)
        self._spread_at = -math.inf
        self._want_at = -math.inf
        self._reassert_at = -math.inf
        self._sync_at = math.inf
        self._expire_at = math.inf
        self._now = -math.inf
        self._left = False
        self._warned = False

    # --- our own record --------------------------------------------------------------------

    def set_record(self, record: Record, now: float) -> Record:
        """Sign and spread our record under the next sequence; `node` and `sequence` are set here.

        A record that says nothing new is not published again. Returns the one that stands.
        """
        self._now = now
        entry = self._roster.own()
        draft = msgspec.structs.replace(record, node=self._own, sequence=self._sequence)
        if entry is not None and draft == entry.record:
            return entry.record
        return self._publish(draft, now)

    def leave(self, now: float) -> None:
        """Say farewell: others drop us at once. After it nothing else is done or sent."""
        entry = self._roster.own()
        if entry is None or self._left:
            return
        holding = entry.record.holding
        if holding is not None:
            holding = msgspec.structs.replace(holding, state="leaving")
        self._publish(msgspec.structs.replace(entry.record, holding=holding, left=True), now)
        self._left = True
        live = self._detector.live()
        farewell = Push(records=(entry.signed,))
        for node in self._rng.sample(live, min(MAX_FAREWELLS, len(live))):
            self._send(node, farewell)

    # --- what is known ---------------------------------------------------------------------

    @property
    def refusals(self) -> Mapping[Admission, int]:
        """How many records were refused, by reason: what hostile or broken nodes sent."""
        return self._roster.directory.refusals

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
        self._now = now
        self._detector.heard(sender, now)
        match message:
            case Ping():
                self._hear(sender, message.rumours, now)
                self._send(sender, Ack(message.nonce, self._piggyback(sender)))
            case Ack():
                self._detector.ack(sender, message.nonce, now)
                self._hear(sender, message.rumours, now)
            case PingRequest():
                self._on_ping_request(sender, message, now)
            case Pull():
                self._on_pull(sender, message, now)
            case _:
                self._on_push(sender, message, now)
        self._collect(now)

    def met(self, node: NodeId, now: float) -> None:
        """A channel with `node` exists: if we took it for dead, it gets to refute that."""
        self._detector.heard(node, now)
        self._collect(now)

    def unreachable(self, node: NodeId, now: float) -> None:
        """Nothing can be delivered to `node`: no address, a refused dial or a broken channel.

        Counts as a failed direct probe; repeated, and with no other node reaching it either, it
        makes the node dead in about two seconds. A dial that merely timed out is no such
        evidence: report it late or not at all, ordinary probes will find out.
        """
        self._detector.unreachable(node, now)
        self._collect(now)

    def pull_from(self, node: NodeId) -> None:
        """Introduce ourselves to `node` and ask for what it knows (push-pull join)."""
        entry = self._roster.own()
        if entry is not None:
            self._send(node, Push(records=(entry.signed,)))
        self._send(node, Pull(self._roster.digest(), reply=entry is not None))

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._left:
            return
        self._now = now
        self._detector.tick(now)
        self._collect(now)
        if self._news and now >= self._spread_at:
            self._spread_at = now + GOSSIP_INTERVAL_S
            self._spread_news()
        if now >= self._sync_at:
            self._sync(now)
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_INTERVAL_S
            self._roster.expire(now)

    def next_deadline(self) -> float:
        """When `tick` has something to do, monotonic; inf when never."""
        if self._left:
            return math.inf
        spread = self._spread_at if self._news else math.inf
        return min(self._detector.next_deadline(), spread, self._sync_at, self._expire_at)

    def drain(self) -> list[tuple[NodeId, GossipMessage]]:
        """Take the messages to send, in order per receiver."""
        for node, theirs in self._answers.items():
            self._outbox.extend(
                (node, push) for push in self._roster.answer(node, theirs, self._now)
            )
        self._answers.clear()
        outbox, self._outbox = self._outbox, []
        return outbox

    def drain_events(self) -> list[tuple[EventLevel, str]]:
        """Take what happened, in words."""
        events = list(self._events)
        self._events.clear()
        return events

    # --- records ---------------------------------------------------------------------------

    def _publish(self, draft: Record, now: float) -> Record:
        entry = self._roster.own()
        sequence = self._sequence if entry is None else self._sequence + 1
        record = msgspec.structs.replace(draft, sequence=sequence)
        if self._roster.directory.admit(seal(record, self._identity), now) not in ("new", "newer"):
            raise UsageError(
                "this node's record is too large or out of bounds to be published; "
                "use fewer or shorter addresses, or a shorter model name"
            )
        self._sequence = sequence
        self._start_timers(now)
        self._tell(self._own, now, with_record=True)
        return record

    def _reassert(self, entry: Entry, now: float) -> bool:
        """Publish our record again under the next sequence, unless that was done just now."""
        if now < self._reassert_at:
            return False
        self._reassert_at = now + REASSERT_INTERVAL_S
        self._publish(entry.record, now)
        return True

    def _on_push(self, sender: NodeId, message: Push, now: float) -> None:
        for signed in message.records[:MAX_PUSH]:
            record = self._roster.directory.read(signed)
            if record is not None and record.node == self._own:
                self._on_own_record(record, now)
            elif (news := self._roster.admit(signed, now)) is not None:
                self._start_timers(now)
                self._events.extend(news[1])
                self._tell(news[0], now, with_record=True)
        self._hear(sender, message.rumours, now)

    def _on_own_record(self, record: Record, now: float) -> None:
        """A record signed with our key: an earlier run's with a later clock, or a twin's."""
        entry = self._roster.own()
        if entry is None:
            self._sequence = max(self._sequence, record.sequence + 1)
        elif record.sequence >= self._sequence and record != entry.record:
            self._sequence = max(self._sequence, record.sequence)
            if self._reassert(entry, now) and not self._warned:
                self._warned = True
                self._events.append(("warning", _TWIN))

    def _start_timers(self, now: float) -> None:
        if self._sync_at == math.inf:
            self._sync_at = now + SYNC_INTERVAL_S
            self._expire_at = now + EXPIRE_INTERVAL_S

    # --- rumours ---------------------------------------------------------------------------

    def _hear(self, sender: NodeId, rumours: Iterable[Rumour], now: float) -> None:
        """Beliefs of a member; those of strangers do not count."""
        if not self._roster.is_member(sender):
            return
        want = False
        for rumour in rumours:
            node = NodeId(rumour.node)
            entry = self._roster.directory.get(node)
            if entry is None:
                want = want or rumour.liveness != "dead"
            elif rumour.sequence > entry.record.sequence:
                want = True
            elif rumour.sequence == entry.record.sequence and rumour.liveness != "alive":
                self._hear_ill(sender, node, rumour, now)
        if want and now >= self._want_at:
            self._want_at = now + WANT_INTERVAL_S
            self._send(sender, Pull(self._roster.digest()))

    def _hear_ill(self, sender: NodeId, node: NodeId, rumour: Rumour, now: float) -> None:
        entry = self._roster.own()
        if node == self._own and entry is not None:
            if self._reassert(entry, now):
                self._detector.ail()
                self._send(sender, Push(records=(entry.signed,)))
        elif node != sender:
            self._detector.accuse(node, sender, now, dead=rumour.liveness == "dead")

    def _piggyback(self, to: NodeId) -> tuple[Rumour, ...]:
        """A few rumours for a Ping or an Ack; what we think ill of the receiver always."""
        if not self._roster.is_member(to):
            return ()
        rumours: list[Rumour] = []
        of_receiver = self._roster.rumour(to, to=to)
        if of_receiver is not None and of_receiver.liveness != "alive":
            rumours.append(of_receiver)
        for node, _ in self._news.freshest():
            rumour = self._roster.rumour(node)
            if rumour is not None and rumour.liveness != "alive" and node != to:
                rumours.append(rumour)
                self._news.count_down(node, 1)
            if len(rumours) >= MAX_PIGGYBACK:
                break
        return tuple(rumours)

    def _collect(self, now: float) -> None:
        """Carry over what the failure detector found and wants sent."""
        self._events.extend(self._roster.take_changes(now))
        for node in self._detector.drain_testimony():
            self._tell(node, now, with_record=False)
        for to, step in self._detector.drain():
            if isinstance(step, PingRequest):
                self._send(to, step)
            else:
                self._send(to, msgspec.structs.replace(step, rumours=self._piggyback(to)))

    # --- spreading -------------------------------------------------------------------------

    def _tell(self, node: NodeId, now: float, *, with_record: bool) -> None:
        self._news.tell(node, len(self._detector.live()) + 1, with_record=with_record)
        self._spread_at = max(self._spread_at, now)

    def _spread_news(self) -> None:
        live = self._detector.live()
        targets = self._rng.sample(live, min(FANOUT, len(live)))
        if not targets:
            # Whoever comes first is told everything by its Pull.
            self._news.clear()
            return
        records: list[SignedRecord] = []
        rumours: list[Rumour] = []
        size = 0
        for node, news in itertools.islice(self._news.freshest(), MAX_PUSH):
            entry, rumour = self._roster.directory.get(node), self._roster.rumour(node)
            if entry is None or rumour is None:
                self._news.drop(node)
                continue
            size += len(entry.signed.payload)
            if size > MAX_SPREAD_BYTES:
                break
            if news.with_record:
                records.append(entry.signed)
            if rumour.liveness != "alive" and not entry.record.left:
                rumours.append(rumour)
            self._news.count_down(node, len(targets))
        for target in targets:
            self._send(target, Push(records=tuple(records), rumours=tuple(rumours)))

    def _sync(self, now: float) -> None:
        """Compare notes with a live node, and knock at a dead one: a partition may be over."""
        live = self._detector.live()
        scale = 1 + max(0.0, math.log2((len(live) + 1) / SYNC_SCALE_FROM))
        self._sync_at = now + SYNC_INTERVAL_S * scale * (0.75 + self._rng.random() / 2)
        for some in (live, self._roster.dead()):
            if some:
                self._send(self._rng.choice(some), Pull(self._roster.digest(), reply=True))

    def _on_pull(self, sender: NodeId, message: Pull, now: float) -> None:
        self._hear(sender, message.digest, now)
        if sender not in self._answers and len(self._answers) >= MAX_ANSWERS:
            return
        self._answers[sender] = message.digest
        if message.reply:
            self._send(sender, Pull(self._roster.digest()))

    def _on_ping_request(self, sender: NodeId, message: PingRequest, now: float) -> None:
        target = NodeId(message.target)
        if not self._roster.is_member(sender):
            return
        if target == self._own:
            self._send(sender, Ack(message.nonce))
        else:
            self._detector.relay(sender, message.nonce, target, now)

    def _send(self, to: NodeId, message: GossipMessage) -> None:
        if len(self._outbox) < MAX_OUTBOX:
            self._outbox.append((to, message))
