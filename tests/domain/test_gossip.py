"""Gossip: what a node believes changes by signed records and its own probes, by nothing else."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from domain_samples import holding, identity, node, record, signed
from gossip_samples import (
    BOOT,
    ME,
    STRANGER,
    drained,
    liveness,
    make_gossip,
    opened,
    own_record,
    sent,
    silence,
    texts,
)

from diffuse_core.domain.announcing import MAX_PIGGYBACK
from diffuse_core.domain.coordinates import SETTLED
from diffuse_core.domain.directory import TOMBSTONE_S
from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.messages import Ack, Ping, PingRequest, Pull, Push, Rumour, Want
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

# --- our own record ------------------------------------------------------------------------


def test_our_record_is_sealed_under_rising_sequences_and_only_when_it_changed() -> None:
    gossip = make_gossip()
    assert own_record(gossip).sequence == BOOT
    same = gossip.set_record(record(5, 77), 1.0)
    assert (same.node, same.sequence) == (ME, BOOT)
    assert gossip.set_record(record(0, capacity=5), 2.0).sequence == BOOT + 1


def test_a_record_that_no_one_would_accept_is_not_published() -> None:
    gossip = make_gossip()
    with pytest.raises(UsageError, match="shorter addresses"):
        gossip.set_record(record(0, addresses=("ü" * 128,) * 9), 1.0)
    assert own_record(gossip).sequence == BOOT


def test_before_anything_is_published_we_can_only_look() -> None:
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)
    gossip.leave(0.0)
    gossip.pull_from(node(1))
    assert drained(gossip) == [(node(1), Pull())]
    assert gossip.next_deadline() == math.inf
    assert gossip.members(0.0) == ()
    gossip.receive(node(1), Push((signed(0, 5), signed(1))), 0.0)
    gossip.receive(node(1), Ping(1, (Rumour(ME, 5, "dead"),)), 0.0)
    assert set(liveness(gossip)) == {node(1)}


def test_a_later_record_of_an_earlier_run_is_outranked() -> None:
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000)
    gossip.receive(node(1), Push((signed(0, BOOT + 50, left=True),)), 0.0)
    assert gossip.set_record(record(0), 0.0).sequence == BOOT + 51
    gossip.receive(node(1), Push((signed(0, BOOT + 99),)), 1.0)
    assert own_record(gossip).sequence == BOOT + 100
    gossip.receive(node(1), Push((signed(0, BOOT + 500),)), 1.1)
    assert own_record(gossip).sequence == BOOT + 100, "at most one answer per interval"
    gossip.receive(node(1), Push((signed(0, BOOT + 500),)), 2.0)
    assert own_record(gossip).sequence == BOOT + 501
    gossip.receive(node(1), Push((signed(0, BOOT + 501, version="twin"),)), 3.0)
    assert own_record(gossip).sequence == BOOT + 502
    gossip.receive(node(1), Push((signed(0, BOOT + 3),)), 4.0)
    assert own_record(gossip).sequence == BOOT + 502
    assert sum("--state-dir" in text for text in texts(gossip)) == 1


def test_what_is_said_of_us_is_refuted_by_a_later_sequence_at_a_bounded_rate() -> None:
    gossip = make_gossip(1)
    lies = tuple(Rumour(ME, BOOT + step, "dead") for step in range(50))
    gossip.receive(node(1), Ping(1, lies), 1.0)
    assert own_record(gossip).sequence == BOOT + 1
    pushes = [message for to, message in gossip.drain() if isinstance(message, Push)]
    assert opened([(ME, push) for push in pushes])[0].sequence == BOOT + 1
    gossip.receive(node(1), Ping(2, (Rumour(ME, BOOT + 1, "suspect"),)), 1.1)
    assert own_record(gossip).sequence == BOOT + 1
    gossip.receive(node(1), Ping(2, (Rumour(ME, BOOT + 1, "suspect"),)), 1.3)
    assert own_record(gossip).sequence == BOOT + 2


def test_a_claimed_sequence_without_a_record_does_not_make_us_jump() -> None:
    gossip = make_gossip(1)
    gossip.receive(node(1), Ping(1, (Rumour(ME, 2**62, "dead"),)), 1.0)
    assert own_record(gossip).sequence == BOOT
    assert drained(gossip) == [(node(1), Ack(1))], "it lies in the future"
    gossip.receive(node(1), Ping(1, (Rumour(ME, BOOT + 9, "dead"),)), 1.0)
    assert own_record(gossip).sequence == BOOT
    assert sent(gossip, Want) == [(node(1), Want((ME,)))]


def test_a_farewell_is_signed_and_final() -> None:
    gossip = make_gossip(1, 2, holding=holding(0, 10))
    gossip.leave(5.0)
    pushes = sent(gossip, Push)
    assert {to for to, _ in pushes} == {node(1), node(2)}
    farewell = opened(pushes)[0]
    assert farewell.left
    assert farewell.holding == holding(0, 10, "leaving")
    assert gossip.next_deadline() == math.inf
    gossip.leave(6.0)
    gossip.tick(6.0)
    gossip.receive(node(1), Ping(1), 6.0)
    assert gossip.drain() == []


# --- others' records -----------------------------------------------------------------------


def test_records_come_from_anybody_but_only_sound_ones_count() -> None:
    gossip = make_gossip()
    forged = msgspec.structs.replace(signed(3), signature=bytes(64))
    gossip.receive(STRANGER, Push((signed(1), forged)), 1.0)
    assert set(liveness(gossip)) == {ME, node(1)}
    assert gossip.counts.refusals["unsound"] == 1
    assert gossip.addresses(node(3)) == ()


def test_a_replayed_record_changes_nothing() -> None:
    gossip = make_gossip()
    old, new = signed(1, 1, addresses=("old:1",)), signed(1, 2, addresses=("new:1",))
    gossip.receive(node(1), Push((old, new)), 1.0)
    gossip.receive(STRANGER, Push((old,)), 2.0)
    assert gossip.addresses(node(1)) == ("new:1",)
    gossip.receive(node(1), Push((signed(1, 2, addresses=("evil:1",)),)), 2.0)
    assert gossip.addresses(node(1)) == ("new:1",)
    assert gossip.counts.refusals["equivocation"] == 1


def test_news_is_announced_to_a_few_until_it_is_old() -> None:
    gossip = make_gossip(1, 2, 3, 4, 5)
    silence(gossip, 0.0, 0.9)
    gossip.receive(node(1), Push((signed(6, 3),)), 1.0)
    told: list[NodeId] = []
    now = 1.0
    while now < 3.0:
        gossip.tick(now)
        pushes = sent(gossip, Push)
        assert opened(pushes) == [], "only who asks is sent the record of another"
        told += [to for to, push in pushes if Rumour(node(6), 3, "alive") in push.rumours]
        now = max(now + 0.01, gossip.next_deadline())
    assert len(told) == 8


def test_our_own_new_record_goes_out_in_full_once_and_is_announced_then() -> None:
    gossip = make_gossip(1, 2, 3, 4, 5)
    silence(gossip, 0.0, 0.9)
    gossip.set_record(record(0, capacity=5), 1.0)
    full, announced, now = 0, 0, 1.0
    while now < 3.0:
        gossip.tick(now)
        pushes = sent(gossip, Push)
        full += len(opened(pushes))
        announced += sum(Rumour(ME, BOOT + 1, "alive") in push.rumours for _, push in pushes)
        now = max(now + 0.01, gossip.next_deadline())
    assert (full, announced) == (4, 8)


def test_what_happens_is_told_in_words() -> None:
    gossip = make_gossip()
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
    for sequence, (changes, expected) in enumerate(steps):
        gossip.receive(STRANGER, Push((signed(1, sequence, **changes),)), float(sequence))
        assert texts(gossip) == expected
    gossip.receive(STRANGER, Push((signed(2, 1, left=True),)), 9.0)
    assert texts(gossip) == []


def test_who_left_is_dropped_at_once_and_stale_gossip_does_not_bring_it_back() -> None:
    gossip = make_gossip(1, 2)
    gossip.receive(node(2), Push((signed(1, 5, left=True),)), 1.0)
    assert set(liveness(gossip, 1.0)) == {ME, node(2)}
    gossip.receive(node(2), Push((signed(1, 4),)), 2.0)
    gossip.receive(node(1), Ping(1), 2.0)
    assert set(liveness(gossip, 2.0)) == {ME, node(2)}
    gossip.receive(node(1), Push((signed(1, 6),)), 3.0)
    assert liveness(gossip, 3.0)[node(1)] == "alive"


# --- liveness ------------------------------------------------------------------------------


def test_a_dead_node_is_shown_for_a_minute_and_revived_only_by_a_later_record() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 8.0)
    assert liveness(gossip, 8.0)[node(1)] == "dead"
    assert [text.split(" ", 1)[1] for text in texts(gossip)] == ["is suspect", "died"]
    gossip.receive(STRANGER, Push((signed(1, 1),)), 9.0)
    assert liveness(gossip, 9.0)[node(1)] == "dead"
    assert node(1) not in liveness(gossip, 70.0)
    gossip.receive(STRANGER, Push((signed(1, 2),)), 71.0)
    assert liveness(gossip, 71.0)[node(1)] == "alive"
    assert texts(gossip) == [f"{short_text(node(1))} is back"]


def test_a_tombstone_is_forgotten_in_the_end() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 100.0)
    gossip.pull_from(node(2))
    assert [one.node for one in gossip.drain()[-1][1].digest] == [ME, node(1)]
    silence(gossip, TOMBSTONE_S, TOMBSTONE_S + 20.0)
    gossip.pull_from(node(2))
    assert [one.node for one in gossip.drain()[-1][1].digest] == [ME]


def test_direct_contact_lets_a_dead_node_refute_it() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 8.0)
    gossip.met(node(1), 9.0)
    (to, ping) = sent(gossip, Ping)[0]
    assert to == node(1)
    assert ping.rumours == (Rumour(node(1), 1, "dead"),)
    gossip.receive(node(1), Ping(5), 9.1)
    acks = sent(gossip, Ack)
    assert acks == [(node(1), Ack(5, (Rumour(node(1), 1, "dead"),)))]


def test_an_unreachable_node_is_dead_soon() -> None:
    gossip = make_gossip(1)
    now = 1.0
    gossip.unreachable(node(1), now)
    while liveness(gossip, now)[node(1)] != "dead":
        now = gossip.next_deadline()
        assert now < 3.5
        gossip.tick(now)
        for to, _ in gossip.drain():
            gossip.unreachable(to, now)


def test_pings_are_answered_also_those_of_strangers() -> None:
    gossip = make_gossip(1)
    gossip.receive(STRANGER, Ping(7), 1.0)
    gossip.receive(node(1), Ping(8), 1.0)
    assert drained(gossip) == [
        (STRANGER, Want((STRANGER,))),
        (STRANGER, Ack(7)),
        (node(1), Ack(8)),
    ]


def test_answers_to_pings_tell_where_we_are_as_soon_as_we_know() -> None:
    gossip = make_gossip()
    for _ in range(SETTLED):
        gossip._roster.position.measured(node(1), 0.02, None)
    gossip.receive(STRANGER, Ping(7), 1.0)
    ((_, ack),) = sent(gossip, Ack)
    assert ack.place == gossip._roster.position.coordinate is not None


def test_members_may_have_others_pinged_strangers_may_not() -> None:
    gossip = make_gossip(1, 2)
    gossip.receive(STRANGER, PingRequest(7, node(2)), 1.0)
    gossip.receive(node(1), PingRequest(8, STRANGER), 1.0)
    assert gossip.drain() == []
    gossip.receive(node(1), PingRequest(9, ME), 1.0)
    gossip.receive(node(1), PingRequest(10, node(2)), 1.0)
    ((to, ping),) = (item for item in gossip.drain() if isinstance(item[1], Ping))
    assert to == node(2)
    gossip.receive(node(2), Ack(ping.nonce), 1.1)
    assert drained(gossip) == [(node(1), Ack(10))]


def test_strangers_and_the_departed_cannot_accuse() -> None:
    gossip = make_gossip(1, 2)
    rumour = Rumour(node(1), 1, "dead")
    gossip.receive(STRANGER, Ping(1, (rumour,)), 1.0)
    gossip.receive(node(2), Push((signed(2, 5, left=True),)), 1.0)
    gossip.receive(node(2), Ping(1, (rumour,)), 1.0)
    gossip.receive(node(1), Ping(1, (rumour,)), 1.0)
    assert liveness(gossip, 1.0)[node(1)] == "alive"


def test_an_accusation_of_an_older_sequence_is_stale_and_of_a_later_one_unproven() -> None:
    gossip = make_gossip(2)
    gossip.receive(node(1), Push((signed(1, 5),)), 0.0)
    gossip.drain()
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 4, "dead"),)), 1.0)
    assert gossip.drain() == []
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 6, "dead"),)), 1.0)
    assert liveness(gossip, 1.0)[node(1)] == "alive"
    assert sent(gossip, Want) == [(node(2), Want((node(1),)))]


def test_an_accusation_is_checked_and_not_parroted() -> None:
    gossip = make_gossip(1, 2)
    gossip.receive(node(2), Ack(1, (Rumour(node(1), 1, "suspect"),)), 1.0)
    assert liveness(gossip, 1.0)[node(1)] == "suspect"
    steps = gossip.drain()
    assert [to for to, message in steps if isinstance(message, Ping)] == [node(1)]
    gossip.receive(node(2), Ping(3), 1.1)
    assert sent(gossip, Ack) == [(node(2), Ack(3))]


def test_our_own_finding_rides_on_pings_a_few_times() -> None:
    gossip = make_gossip(1, 2)
    gossip.unreachable(node(1), 1.0)
    gossip.drain()
    gossip.tick(1.5)
    gossip.drain()
    told = []
    for nonce in range(9):
        gossip.receive(node(2), Ping(nonce), 1.6)
        told += sent(gossip, Ack)[0][1].rumours
    assert 0 < len(told) <= 4
    assert set(told) == {Rumour(node(1), 1, "suspect")}


def test_rumours_on_one_ping_are_bounded() -> None:
    others = range(1, 30)
    gossip = make_gossip(*others)
    for number in others:
        gossip.unreachable(node(number), 1.0)
    gossip.tick(1.5)
    pings = dict(sent(gossip, Ping))
    assert max(len(ping.rumours) for ping in pings.values()) == MAX_PIGGYBACK
    assert all(ping.rumours[0] == Rumour(to, 1, "suspect") for to, ping in pings.items())


def test_who_holds_nothing_can_leave_too() -> None:
    gossip = make_gossip(1)
    gossip.leave(1.0)
    assert opened(sent(gossip, Push))[0].holding is None
