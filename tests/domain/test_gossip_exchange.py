"""Gossip: what is exchanged on demand, and what floods and hostile senders cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from domain_samples import node, signed
from gossip_samples import (
    BOOT,
    ME,
    STRANGER,
    liveness,
    make_gossip,
    opened,
    own_record,
    sent,
    silence,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain import gossip as module
from diffuse_core.domain.buckets import SUMMARY_BYTES
from diffuse_core.domain.exchange import MAX_ANSWERS
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import (
    MAX_PUSH,
    Ack,
    AnyMessage,
    GossipMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Rumour,
    Summary,
    Want,
)
from diffuse_core.domain.records import MAX_CLOCK_MS, SignedRecord
from diffuse_core.domain.wants import PATIENCE_S

if TYPE_CHECKING:
    import pytest

# --- pulls ---------------------------------------------------------------------------------


def test_joining_introduces_us_and_asks_both_ways() -> None:
    gossip = make_gossip(1)
    gossip.pull_from(node(7))
    (first, push), (second, pull) = gossip.drain()
    assert first == second == node(7)
    assert opened([(first, push)]) == [own_record(gossip)]
    assert pull.reply
    assert {one.node for one in pull.digest} == {ME, node(1)}


def test_a_member_is_pushed_what_it_lacks_and_pulled_from_in_return() -> None:
    gossip = make_gossip(1, 2, 3)
    digest = (
        Rumour(ME, BOOT, "alive"),
        Rumour(node(1), 1, "alive"),
        Rumour(node(2), 0, "alive"),
        Rumour(node(8), 4, "dead"),
    )
    gossip.receive(node(1), Pull(digest, reply=True), 1.0)
    answer = gossip.drain()
    pushes = [(to, one) for to, one in answer if isinstance(one, Push)]
    assert {one.node for one in opened(pushes)} == {node(2), node(3)}
    assert pushes[-1][1].last
    pulls = [(to, one.reply) for to, one in answer if isinstance(one, Pull)]
    assert pulls == [(node(1), False)]


def test_a_member_gets_no_record_of_the_dead_but_its_own_and_farewells_it_should_know() -> None:
    gossip = make_gossip(1, 3)
    gossip.receive(node(3), Push((signed(3, 5, left=True),)), 0.0)
    silence(gossip, 0.0, 8.0)
    gossip.receive(node(2), Push((signed(2),)), 9.0)
    gossip.drain()
    gossip.receive(node(2), Pull(), 9.0)
    assert {one.node for one in opened(sent(gossip, Push))} == {ME, node(2)}
    gossip.receive(node(2), Pull((Rumour(node(1), 0, "alive"), Rumour(node(3), 1, "alive"))), 9.0)
    assert {one.node for one in opened(sent(gossip, Push))} == {ME, node(2), node(3)}
    gossip.receive(node(1), Pull((Rumour(node(1), 0, "alive"),)), 9.0)
    assert node(1) in {one.node for one in opened(sent(gossip, Push))}


def test_an_observer_gets_everything_shown_in_bounded_messages() -> None:
    others = range(1, 150)
    gossip = make_gossip(*others, 200)
    gossip.receive(node(200), Push((signed(200, 2, left=True),)), 0.5)
    gossip.drain()
    gossip.receive(STRANGER, Pull(reply=False), 1.0)
    gossip.receive(STRANGER, Pull(reply=False), 1.0)
    pushes = sent(gossip, Push)
    assert [push.last for _, push in pushes] == [False, False, True]
    assert all(to == STRANGER and len(push.records) <= MAX_PUSH for to, push in pushes)
    assert len(opened(pushes)) == 150
    assert {one.liveness for one in pushes[-1][1].rumours} == {"alive"}
    assert len(pushes[-1][1].rumours) == 150
    assert STRANGER not in liveness(gossip, 1.0)


def test_an_observer_sees_the_dead_as_dead() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 8.0)
    gossip.receive(STRANGER, Pull(), 9.0)
    ((_, push),) = sent(gossip, Push)
    assert Rumour(node(1), 1, "dead") in push.rumours


def test_pushes_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_core.domain.reconcile.MAX_PUSH_BYTES", 1000)
    gossip = make_gossip(*range(1, 20))
    gossip.receive(STRANGER, Pull(), 1.0)
    pushes = [push for _, push in sent(gossip, Push)]
    assert all(len(msgspec.msgpack.encode(push.records)) <= 1000 for push in pushes)
    assert (pushes[-1].records, len(pushes[-1].rumours)) == ((), 20)


def test_notes_are_compared_with_the_living_and_the_dead_are_knocked_at() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 8.0)
    gossip.receive(node(2), Push((signed(2),)), 8.0)
    gossip.drain()
    pulled: set[NodeId] = set()
    knocked: list[Ping] = []
    now = 8.0
    while now < 24.0:
        now = max(now, gossip.next_deadline())
        gossip.tick(now)
        for to, message in gossip.drain():
            if isinstance(message, Ping) and to == node(2):
                gossip.receive(to, Ack(message.nonce), now)
            elif isinstance(message, Ping):
                knocked.append(message)
            elif isinstance(message, Pull) and message.reply:
                pulled.add(to)
        now += 0.001
    assert pulled == {node(2)}
    assert 3 <= len(knocked) <= 8
    assert {ping.rumours for ping in knocked} == {(Rumour(node(1), 1, "dead"),)}


def test_alone_nothing_is_sent() -> None:
    gossip = make_gossip()
    silence(gossip, 0.0, 60.0)
    gossip.tick(60.0)
    assert gossip.drain() == []


# --- hostile senders -----------------------------------------------------------------------

SOUND = signed(1, 1)
_sequences = st.one_of(st.integers(0, 3), st.integers(BOOT - 1, BOOT + 3), st.just(2**63 - 1))
_nodes = st.sampled_from([ME, node(1), node(2), STRANGER, NodeId(bytes(32))])
_rumours = st.lists(
    st.builds(Rumour, _nodes, _sequences, st.sampled_from(["alive", "suspect", "dead"])),
    max_size=6,
).map(tuple)
_signed = st.one_of(
    st.just(SOUND),
    st.builds(SignedRecord, st.binary(max_size=200), st.binary(min_size=64, max_size=64)),
    st.builds(SignedRecord, st.just(SOUND.payload), st.binary(min_size=64, max_size=64)),
)
_clocks = st.sampled_from([0, 1, 1000, MAX_CLOCK_MS])
_summaries = st.integers(0, 255).map(lambda byte: bytes([byte]) * SUMMARY_BYTES)
_nonces = st.integers(0, 2**32 - 1)
_messages = st.one_of(
    st.builds(Ping, _nonces, _rumours, _clocks),
    st.builds(Ack, _nonces, _rumours, _clocks),
    st.builds(PingRequest, _nonces, _nodes),
    st.builds(Pull, _rumours, st.booleans(), _clocks, st.binary(max_size=256)),
    st.builds(Want, st.lists(_nodes, min_size=1, max_size=4).map(tuple)),
    st.builds(Summary, _summaries, _clocks),
    st.builds(Push, st.lists(_signed, max_size=4).map(tuple), _rumours, st.booleans()),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(_nodes, _messages), max_size=25))
def test_no_message_raises_kills_a_node_or_invents_one(
    hostile: list[tuple[NodeId, GossipMessage]],
) -> None:
    gossip = make_gossip(1, 2)
    for turn, (sender, message) in enumerate(hostile):
        now = 1.0 + turn / 100
        gossip.receive(sender, message, now)
        gossip.tick(now)
        for to, step in gossip.drain():
            msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=AnyMessage)
            if isinstance(step, Ping) and to in (node(1), node(2)):
                gossip.receive(to, Ack(step.nonce), now)
    assert set(liveness(gossip)) == {ME, node(1), node(2)}
    assert "dead" not in liveness(gossip).values()
    assert gossip.addresses(node(1)) == ()


# --- bounds --------------------------------------------------------------------------------


def test_a_flood_fills_no_queue_beyond_its_bound() -> None:
    gossip = make_gossip(1)
    for nonce in range(module.MAX_OUTBOX + 50):
        gossip.receive(STRANGER, Ping(nonce), 1.0)
    assert len(gossip.drain()) == module.MAX_OUTBOX
    for number in range(MAX_ANSWERS + 50):
        gossip.receive(NodeId(number.to_bytes(32, "big")), Pull(), 1.0)
    assert len(sent(gossip, Push)) == MAX_ANSWERS


def test_news_beyond_one_message_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_core.domain.announcing.MAX_ANNOUNCED", 4)
    gossip = make_gossip(*range(1, 8))
    seen: set[bytes] = set()
    now = 0.3
    while now < 5.0:
        gossip.tick(now)
        pushes = sent(gossip, Push)
        assert all(len(push.rumours) <= 4 for _, push in pushes)
        seen |= {one.node for _, push in pushes for one in push.rumours}
        now = max(now + 0.01, gossip.next_deadline())
    assert seen == {ME, *(node(number) for number in range(1, 8))}


def test_news_about_a_forgotten_node_is_dropped() -> None:
    gossip = make_gossip(1)
    gossip.receive(node(1), Push((signed(3, 1),)), 1.0)
    gossip._roster.directory.bury(node(3), -module.EXPIRE_INTERVAL_S)
    gossip._roster.expire(10_000.0)
    gossip.tick(1.0)
    told = {one.node for _, push in sent(gossip, Push) for one in push.rumours}
    assert told == {ME, node(1)}


def test_what_was_announced_is_asked_for_once_and_then_elsewhere() -> None:
    gossip = make_gossip(1, 2)
    announced = (Rumour(node(5), 9, "alive"), Rumour(node(6), 1, "suspect"))
    for _ in range(10):
        gossip.receive(node(1), Ping(1, announced), 1.0)
    gossip.receive(node(2), Ping(1, announced), 1.0)
    assert sent(gossip, Want) == [(node(1), Want((node(5), node(6))))]
    gossip.receive(node(2), Push((signed(6),)), 1.1)
    gossip.tick(1.0 + PATIENCE_S[1])
    assert sent(gossip, Want) == [(node(2), Want((node(5),)))]
    gossip.tick(1.0 + 2 * PATIENCE_S[1])
    assert sent(gossip, Want) == []
    gossip.receive(node(1), Ping(1, (Rumour(node(7), 9, "dead"),)), 9.0)
    assert sent(gossip, Want) == [], "who is gone and unknown stays so"


def test_members_are_sent_what_they_want_and_strangers_are_not() -> None:
    gossip = make_gossip(1, 2)
    gossip.receive(STRANGER, Want((node(2),)), 1.0)
    gossip.receive(node(1), Want((node(9),)), 1.0)
    assert gossip.drain() == []
    gossip.receive(node(1), Want((node(2), node(9), ME)), 1.0)
    assert [one.node for one in opened(sent(gossip, Push))] == [node(2), ME]


def test_our_own_messages_come_from_nobody() -> None:
    gossip = make_gossip()
    gossip.receive(ME, Ping(1), 1.0)
    assert gossip.drain() == []
