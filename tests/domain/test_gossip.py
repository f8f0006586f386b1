"""Gossip: what a node believes changes by signed records and its own probes, by nothing else."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from domain_samples import holding, identity, node, record, signed

from diffuse_core.domain import gossip as module
from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import NodeId, short_text
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
from diffuse_core.domain.records import Record, first_sequence, open_record
from diffuse_core.errors import UsageError

ME = node(0)
BOOT = first_sequence(1000)
STRANGER = node(999)


def _gossip(*others: int, **changes: Any) -> Gossip:
    """Node 0, published, knowing `others` by records of sequence 1; nothing left to send."""
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)  # noqa: S311  (test data)
    gossip.set_record(record(0, **changes), 0.0)
    for number in others:
        gossip.receive(node(number), Push((signed(number),)), 0.0)
    gossip.drain()
    gossip.drain_events()
    return gossip


def _sent(gossip: Gossip, kind: type[GossipMessage]) -> list[tuple[NodeId, Any]]:
    return [(to, message) for to, message in gossip.drain() if isinstance(message, kind)]


def _liveness(gossip: Gossip, now: float = 0.0) -> dict[NodeId, str]:
    return {NodeId(one.record.node): one.liveness for one in gossip.members(now)}


def _texts(gossip: Gossip) -> list[str]:
    return [text for _, text in gossip.drain_events()]


def _silence(gossip: Gossip, start: float, end: float) -> None:
    now = start
    while (now := max(now, gossip.next_deadline())) <= end:
        gossip.tick(now)
        gossip.drain()
        now += 1e-6


def _own(gossip: Gossip) -> Record:
    return next(one.record for one in gossip.members(0.0) if one.record.node == ME)


def _records(pushes: list[tuple[NodeId, Push]]) -> list[Record]:
    opened = [open_record(one) for _, push in pushes for one in push.records]
    return [one for one in opened if one is not None]


# --- our own record ------------------------------------------------------------------------


def test_our_record_is_sealed_under_rising_sequences_and_only_when_it_changed() -> None:
    gossip = _gossip()
    assert _own(gossip).sequence == BOOT
    same = gossip.set_record(record(5, 77), 1.0)
    assert (same.node, same.sequence) == (ME, BOOT)
    assert gossip.set_record(record(0, capacity=5), 2.0).sequence == BOOT + 1


def test_a_record_that_no_one_would_accept_is_not_published() -> None:
    gossip = _gossip()
    with pytest.raises(UsageError, match="shorter addresses"):
        gossip.set_record(record(0, addresses=("ü" * 128,) * 9), 1.0)
    assert _own(gossip).sequence == BOOT


def test_before_anything_is_published_we_can_only_look() -> None:
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)  # noqa: S311  (test data)
    gossip.leave(0.0)
    gossip.pull_from(node(1))
    assert gossip.drain() == [(node(1), Pull())]
    assert gossip.next_deadline() == math.inf
    assert gossip.members(0.0) == ()
    gossip.receive(node(1), Push((signed(0, 5), signed(1))), 0.0)
    gossip.receive(node(1), Ping(1, (Rumour(ME, 5, "dead"),)), 0.0)
    assert set(_liveness(gossip)) == {node(1)}


def test_a_later_record_of_an_earlier_run_is_outranked() -> None:
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)  # noqa: S311  (test data)
    gossip.receive(node(1), Push((signed(0, BOOT + 50, left=True),)), 0.0)
    assert gossip.set_record(record(0), 0.0).sequence == BOOT + 51
    gossip.receive(node(1), Push((signed(0, BOOT + 99),)), 1.0)
    assert _own(gossip).sequence == BOOT + 100
    gossip.receive(node(1), Push((signed(0, BOOT + 500),)), 1.1)
    assert _own(gossip).sequence == BOOT + 100, "at most one answer per interval"
    gossip.receive(node(1), Push((signed(0, BOOT + 500),)), 2.0)
    assert _own(gossip).sequence == BOOT + 501
    gossip.receive(node(1), Push((signed(0, BOOT + 501, version="twin"),)), 3.0)
    assert _own(gossip).sequence == BOOT + 502
    gossip.receive(node(1), Push((signed(0, BOOT + 3),)), 4.0)
    assert _own(gossip).sequence == BOOT + 502
    assert sum("--state-dir" in text for text in _texts(gossip)) == 1


def test_what_is_said_of_us_is_refuted_by_a_later_sequence_at_a_bounded_rate() -> None:
    gossip = _gossip(1)
    lies = tuple(Rumour(ME, BOOT + step, "dead") for step in range(50))
    gossip.receive(node(1), Ping(1, lies), 1.0)
    assert _own(gossip).sequence == BOOT + 1
    pushes = [message for to, message in gossip.drain() if isinstance(message, Push)]
    assert _records([(ME, push) for push in pushes])[0].sequence == BOOT + 1
    gossip.receive(node(1), Ping(2, (Rumour(ME, BOOT + 1, "suspect"),)), 1.1)
    assert _own(gossip).sequence == BOOT + 1
    gossip.receive(node(1), Ping(2, (Rumour(ME, BOOT + 1, "suspect"),)), 1.3)
    assert _own(gossip).sequence == BOOT + 2


def test_a_claimed_sequence_without_a_record_does_not_make_us_jump() -> None:
    gossip = _gossip(1)
    gossip.receive(node(1), Ping(1, (Rumour(ME, 2**62, "dead"),)), 1.0)
    assert _own(gossip).sequence == BOOT
    assert _sent(gossip, Pull)[0][0] == node(1)


def test_a_farewell_is_signed_and_final() -> None:
    gossip = _gossip(1, 2, holding=holding(0, 10))
    gossip.leave(5.0)
    pushes = _sent(gossip, Push)
    assert {to for to, _ in pushes} == {node(1), node(2)}
    farewell = _records(pushes)[0]
    assert farewell.left
    assert farewell.holding == holding(0, 10, "leaving")
    assert gossip.next_deadline() == math.inf
    gossip.leave(6.0)
    gossip.tick(6.0)
    gossip.receive(node(1), Ping(1), 6.0)
    assert gossip.drain() == []


# --- others' records -----------------------------------------------------------------------


def test_records_come_from_anybody_but_only_sound_ones_count() -> None:
    gossip = _gossip()
    forged = msgspec.structs.replace(signed(3), signature=bytes(64))
    gossip.receive(STRANGER, Push((signed(1), forged)), 1.0)
    assert set(_liveness(gossip)) == {ME, node(1)}
    assert gossip.refusals["unsound"] == 1
    assert gossip.addresses(node(3)) == ()


def test_a_replayed_record_changes_nothing() -> None:
    gossip = _gossip()
    old, new = signed(1, 1, addresses=("old:1",)), signed(1, 2, addresses=("new:1",))
    gossip.receive(node(1), Push((old, new)), 1.0)
    gossip.receive(STRANGER, Push((old,)), 2.0)
    assert gossip.addresses(node(1)) == ("new:1",)
    gossip.receive(node(1), Push((signed(1, 2, addresses=("evil:1",)),)), 2.0)
    assert gossip.addresses(node(1)) == ("new:1",)
    assert gossip.refusals["equivocation"] == 1


def test_news_is_passed_on_to_a_few_until_it_is_old() -> None:
    gossip = _gossip(1, 2, 3, 4, 5)
    _silence(gossip, 0.0, 0.9)
    gossip.receive(node(1), Push((signed(6, 3),)), 1.0)
    sent: list[Record] = []
    now = 1.0
    while now < 3.0:
        gossip.tick(now)
        sent += [one for one in _records(_sent(gossip, Push)) if one.node == node(6)]
        now = max(now + 0.01, gossip.next_deadline())
    assert len(sent) == 6


def test_what_happens_is_told_in_words() -> None:
    gossip = _gossip()
    name = short_text(node(1))
    steps = [
        (
            {"holding": holding(10, 20, "claiming")},
            [f"{name} joined as host", f"{name} claims 10:20"],
        ),
        ({"holding": holding(10, 20, "loading")}, [f"{name} is loading 10:20"]),
        ({"holding": holding(10, 20)}, [f"{name} is ready with 10:20"]),
        ({"holding": holding(10, 20), "capacity": 9}, []),
        ({"holding": holding(10, 20, "leaving")}, [f"{name} is giving up 10:20"]),
        ({}, [f"{name} gave up 10:20"]),
        ({"left": True}, [f"{name} left"]),
        ({"role": "sentinel"}, [f"{name} joined as sentinel"]),
    ]
    for sequence, (changes, texts) in enumerate(steps):
        gossip.receive(STRANGER, Push((signed(1, sequence, **changes),)), float(sequence))
        assert _texts(gossip) == texts
    gossip.receive(STRANGER, Push((signed(2, 1, left=True),)), 9.0)
    assert _texts(gossip) == []


def test_who_left_is_dropped_at_once_and_stale_gossip_does_not_bring_it_back() -> None:
    gossip = _gossip(1, 2)
    gossip.receive(node(2), Push((signed(1, 5, left=True),)), 1.0)
    assert set(_liveness(gossip, 1.0)) == {ME, node(2)}
    gossip.receive(node(2), Push((signed(1, 4),)), 2.0)
    gossip.receive(node(1), Ping(1), 2.0)
    assert set(_liveness(gossip, 2.0)) == {ME, node(2)}
    gossip.receive(node(1), Push((signed(1, 6),)), 3.0)
    assert _liveness(gossip, 3.0)[node(1)] == "alive"


# --- liveness ------------------------------------------------------------------------------


def test_a_dead_node_is_shown_for_a_minute_and_revived_only_by_a_later_record() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 8.0)
    assert _liveness(gossip, 8.0)[node(1)] == "dead"
    assert [text.split(" ", 1)[1] for text in _texts(gossip)] == ["is suspect", "died"]
    gossip.receive(STRANGER, Push((signed(1, 1),)), 9.0)
    assert _liveness(gossip, 9.0)[node(1)] == "dead"
    assert node(1) not in _liveness(gossip, 70.0)
    gossip.receive(STRANGER, Push((signed(1, 2),)), 71.0)
    assert _liveness(gossip, 71.0)[node(1)] == "alive"
    assert _texts(gossip) == [f"{short_text(node(1))} is back"]


def test_a_tombstone_is_forgotten_in_the_end() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 700.0)
    gossip.pull_from(node(2))
    assert [one.node for one in gossip.drain()[-1][1].digest] == [ME]


def test_direct_contact_lets_a_dead_node_refute_it() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 8.0)
    gossip.met(node(1), 9.0)
    (to, ping) = _sent(gossip, Ping)[0]
    assert to == node(1)
    assert ping.rumours == (Rumour(node(1), 1, "dead"),)
    gossip.receive(node(1), Ping(5), 9.1)
    acks = _sent(gossip, Ack)
    assert acks == [(node(1), Ack(5, (Rumour(node(1), 1, "dead"),)))]


def test_an_unreachable_node_is_dead_soon() -> None:
    gossip = _gossip(1)
    now = 1.0
    gossip.unreachable(node(1), now)
    while _liveness(gossip, now)[node(1)] != "dead":
        now = gossip.next_deadline()
        assert now < 3.5
        gossip.tick(now)
        for to, _ in gossip.drain():
            gossip.unreachable(to, now)


def test_pings_are_answered_also_those_of_strangers() -> None:
    gossip = _gossip(1)
    gossip.receive(STRANGER, Ping(7), 1.0)
    gossip.receive(node(1), Ping(8), 1.0)
    assert _sent(gossip, Ack) == [(STRANGER, Ack(7)), (node(1), Ack(8))]


def test_members_may_have_others_pinged_strangers_may_not() -> None:
    gossip = _gossip(1, 2)
    gossip.receive(STRANGER, PingRequest(7, node(2)), 1.0)
    gossip.receive(node(1), PingRequest(8, STRANGER), 1.0)
    assert gossip.drain() == []
    gossip.receive(node(1), PingRequest(9, ME), 1.0)
    gossip.receive(node(1), PingRequest(10, node(2)), 1.0)
    ((to, ping),) = (item for item in gossip.drain() if isinstance(item[1], Ping))
    assert to == node(2)
    gossip.receive(node(2), Ack(ping.nonce), 1.1)
    assert gossip.drain() == [(node(1), Ack(10))]


def test_strangers_and_the_departed_cannot_accuse() -> None:
    gossip = _gossip(1, 2)
    rumour = Rumour(node(1), 1, "dead")
    gossip.receive(STRANGER, Ping(1, (rumour,)), 1.0)
    gossip.receive(node(2), Push((signed(2, 5, left=True),)), 1.0)
    gossip.receive(node(2), Ping(1, (rumour,)), 1.0)
    gossip.receive(node(1), Ping(1, (rumour,)), 1.0)
    assert _liveness(gossip, 1.0)[node(1)] == "alive"


def test_an_accusation_of_an_older_sequence_is_stale_and_of_a_later_one_unproven() -> None:
    gossip = _gossip(2)
    gossip.receive(node(1), Push((signed(1, 5),)), 0.0)
    gossip.drain()
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 4, "dead"),)), 1.0)
    assert gossip.drain() == []
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 6, "dead"),)), 1.0)
    assert _liveness(gossip, 1.0)[node(1)] == "alive"
    assert [to for to, _ in _sent(gossip, Pull)] == [node(2)]


def test_an_accusation_is_checked_and_not_parroted() -> None:
    gossip = _gossip(1, 2)
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 1, "suspect"),)), 1.0)
    assert _liveness(gossip, 1.0)[node(1)] == "suspect"
    sent = gossip.drain()
    assert [to for to, message in sent if isinstance(message, Ping)] == [node(1)]
    gossip.receive(node(2), Ping(3), 1.1)
    assert _sent(gossip, Ack) == [(node(2), Ack(3))]


def test_our_own_finding_rides_on_pings_a_few_times() -> None:
    gossip = _gossip(1, 2)
    gossip.unreachable(node(1), 1.0)
    gossip.drain()
    gossip.tick(1.5)
    gossip.drain()
    told = []
    for nonce in range(9):
        gossip.receive(node(2), Ping(nonce), 1.6)
        told += _sent(gossip, Ack)[0][1].rumours
    assert 0 < len(told) <= 4
    assert set(told) == {Rumour(node(1), 1, "suspect")}


def test_rumours_on_one_ping_are_bounded() -> None:
    others = range(1, 30)
    gossip = _gossip(*others)
    for number in others:
        gossip.unreachable(node(number), 1.0)
    gossip.tick(1.5)
    pings = dict(_sent(gossip, Ping))
    assert max(len(ping.rumours) for ping in pings.values()) == module.MAX_PIGGYBACK
    assert all(ping.rumours[0] == Rumour(to, 1, "suspect") for to, ping in pings.items())


def test_who_holds_nothing_can_leave_too() -> None:
    gossip = _gossip(1)
    gossip.leave(1.0)
    assert _records(_sent(gossip, Push))[0].holding is None


# --- pulls ---------------------------------------------------------------------------------


def test_joining_introduces_us_and_asks_both_ways() -> None:
    gossip = _gossip(1)
    gossip.pull_from(node(7))
    (first, push), (second, pull) = gossip.drain()
    assert first == second == node(7)
    assert _records([(first, push)]) == [_own(gossip)]
    assert pull.reply
    assert {one.node for one in pull.digest} == {ME, node(1)}


def test_a_member_is_pushed_what_it_lacks_and_pulled_from_in_return() -> None:
    gossip = _gossip(1, 2, 3)
    digest = (
        Rumour(ME, BOOT, "alive"),
        Rumour(node(1), 1, "alive"),
        Rumour(node(2), 0, "alive"),
        Rumour(node(8), 4, "dead"),
    )
    gossip.receive(node(1), Pull(digest, reply=True), 1.0)
    sent = gossip.drain()
    pushes = [(to, one) for to, one in sent if isinstance(one, Push)]
    assert {one.node for one in _records(pushes)} == {node(2), node(3)}
    assert pushes[-1][1].last
    pulls = [(to, one.reply) for to, one in sent if isinstance(one, Pull)]
    assert pulls == [(node(1), False)]


def test_a_member_hears_of_the_dead_it_knows_but_gets_no_record_of_those_it_does_not() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 8.0)
    gossip.receive(node(2), Push((signed(2),)), 9.0)
    gossip.drain()
    gossip.receive(node(2), Pull(), 9.0)
    ((_, push),) = _sent(gossip, Push)
    assert {one.node for one in _records([(ME, push)])} == {ME, node(2)}
    gossip.receive(node(2), Pull((Rumour(node(1), 1, "alive"),)), 9.0)
    ((_, push),) = _sent(gossip, Push)
    assert push.rumours == (Rumour(node(1), 1, "dead"),)
    gossip.receive(node(2), Pull((Rumour(node(1), 1, "dead"),)), 9.0)
    ((_, push),) = _sent(gossip, Push)
    assert push.rumours == ()


def test_an_observer_gets_everything_shown_in_bounded_messages() -> None:
    others = range(1, 150)
    gossip = _gossip(*others, 200)
    gossip.receive(node(200), Push((signed(200, 2, left=True),)), 0.5)
    gossip.drain()
    gossip.receive(STRANGER, Pull(reply=False), 1.0)
    gossip.receive(STRANGER, Pull(reply=False), 1.0)
    pushes = _sent(gossip, Push)
    assert [push.last for _, push in pushes] == [False, False, True]
    assert all(to == STRANGER and len(push.records) <= MAX_PUSH for to, push in pushes)
    assert len(_records(pushes)) == 150
    assert {one.liveness for one in pushes[-1][1].rumours} == {"alive"}
    assert len(pushes[-1][1].rumours) == 150
    assert STRANGER not in _liveness(gossip, 1.0)


def test_an_observer_sees_the_dead_as_dead() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 8.0)
    gossip.receive(STRANGER, Pull(), 9.0)
    ((_, push),) = _sent(gossip, Push)
    assert Rumour(node(1), 1, "dead") in push.rumours


def test_pushes_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_core.domain.reconcile.MAX_PUSH_BYTES", 1000)
    gossip = _gossip(*range(1, 20))
    gossip.receive(STRANGER, Pull(), 1.0)
    pushes = [push for _, push in _sent(gossip, Push)]
    assert all(len(msgspec.msgpack.encode(push.records)) <= 1000 for push in pushes)
    assert (pushes[-1].records, len(pushes[-1].rumours)) == ((), 20)


def test_notes_are_compared_with_the_living_and_the_dead_now_and_then() -> None:
    gossip = _gossip(1)
    _silence(gossip, 0.0, 8.0)
    gossip.receive(node(2), Push((signed(2),)), 8.0)
    gossip.drain()
    pulled: set[NodeId] = set()
    now = 8.0
    while now < 24.0:
        now = max(now, gossip.next_deadline())
        gossip.tick(now)
        for to, message in gossip.drain():
            if isinstance(message, Ping):
                gossip.receive(to, Ack(message.nonce), now)
            elif isinstance(message, Pull) and message.reply:
                pulled.add(to)
        now += 0.001
    assert pulled == {node(1), node(2)}


def test_alone_nothing_is_sent() -> None:
    gossip = _gossip()
    _silence(gossip, 0.0, 60.0)
    gossip.tick(60.0)
    assert gossip.drain() == []


# --- bounds --------------------------------------------------------------------------------


def test_a_flood_fills_no_queue_beyond_its_bound() -> None:
    gossip = _gossip(1)
    for nonce in range(module.MAX_OUTBOX + 50):
        gossip.receive(STRANGER, Ping(nonce), 1.0)
    assert len(gossip.drain()) == module.MAX_OUTBOX
    for number in range(module.MAX_ANSWERS + 50):
        gossip.receive(NodeId(number.to_bytes(32, "big")), Pull(), 1.0)
    assert len(_sent(gossip, Push)) == module.MAX_ANSWERS


def test_news_beyond_one_message_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPREAD_BYTES", 400)
    gossip = _gossip(*range(1, 8))
    seen: set[bytes] = set()
    now = 0.3
    while now < 5.0:
        gossip.tick(now)
        pushes = _sent(gossip, Push)
        assert all(len(push.records) <= 4 for _, push in pushes)
        seen |= {one.node for one in _records(pushes)}
        now = max(now + 0.01, gossip.next_deadline())
    assert seen == {ME, *(node(number) for number in range(1, 8))}


def test_news_about_a_forgotten_node_is_dropped() -> None:
    gossip = _gossip(1)
    gossip.receive(node(1), Push((signed(3, 1),)), 1.0)
    gossip._roster.directory.bury(node(3), -module.EXPIRE_INTERVAL_S)
    gossip._roster.expire(1000.0)
    gossip.tick(1.0)
    assert all(one.node != node(3) for one in _records(_sent(gossip, Push)))


def test_asking_for_what_rumours_promise_is_rate_limited() -> None:
    gossip = _gossip(1)
    for _ in range(10):
        gossip.receive(node(1), Ping(1, (Rumour(node(5), 9, "alive"),)), 1.0)
    assert len(_sent(gossip, Pull)) == 1
    gossip.receive(node(1), Ping(1, (Rumour(node(5), 9, "dead"),)), 9.0)
    assert _sent(gossip, Pull) == []


def test_our_own_messages_come_from_nobody() -> None:
    gossip = _gossip()
    gossip.receive(ME, Ping(1), 1.0)
    assert gossip.drain() == []
