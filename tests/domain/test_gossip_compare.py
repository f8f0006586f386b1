"""Gossip: tables are compared by summaries, and what others may ask of us is bounded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from domain_samples import identity, node, record, signed
from gossip_samples import (
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

from diffuse_core.domain import exchange as module
from diffuse_core.domain.exchange import PLAIN_SYNC
from diffuse_core.domain.gossip import SYNC_FIRST_S, Gossip
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.messages import (
    Ack,
    GossipMessage,
    Ping,
    Pull,
    Push,
    Rumour,
    Summary,
    Want,
)

if TYPE_CHECKING:
    import pytest
from diffuse_core.domain.records import first_sequence

MANY = range(1, PLAIN_SYNC + 10)
YOU = node(1)


def _other(*numbers: int) -> Gossip:
    """Node 1, knowing nodes 0 and `numbers`."""
    gossip = Gossip(identity(1), random.Random(2), boot_ms=1000)
    gossip.set_record(record(1), 0.0)
    for number in numbers:
        gossip.receive(node(number), Push((signed(number),)), 0.0)
    gossip.drain()
    return gossip


def _converse(one: Gossip, two: Gossip, now: float) -> list[GossipMessage]:
    """Hand messages between the two until there are no more; what was said."""
    said: list[GossipMessage] = []
    for _ in range(20):
        for sender, receiver, gossip in ((one, two, ME), (two, one, YOU)):
            for to, message in sender.drain():
                if to in (ME, YOU):
                    said.append(message)
                    receiver.receive(gossip, message, now)
    return said


def _compared(one: Gossip, two: Gossip) -> list[GossipMessage]:
    one.pull_from(YOU)
    return _converse(one, two, 1.0)


def test_equal_tables_are_compared_by_one_message_and_its_answer() -> None:
    mine, yours = make_gossip(*MANY), _other(*MANY)
    yours.receive(ME, Push((_record_of(mine),)), 0.0)
    mine.receive(YOU, Push((_record_of(yours),)), 0.0)
    mine.drain()
    said = _compared(mine, yours)
    assert [type(one) for one in said] == [Push, Summary, Push]
    assert said[-1] == Push()


def _record_of(gossip: Gossip) -> object:
    entry = gossip._roster.directory.get(gossip._own)
    assert entry is not None
    return entry.signed


def test_what_differs_is_found_announced_and_asked_for_both_ways() -> None:
    mine, yours = make_gossip(*MANY, 200, 201), _other(*MANY, 300)
    yours.receive(node(5), Push((signed(5, 9, capacity=9),)), 0.0)
    yours.receive(node(6), Push((signed(6, 9, left=True),)), 0.0)
    yours.drain()
    said = _compared(mine, yours)
    assert {type(one) for one in said} == {Push, Summary, Pull, Want}
    for gossip in (mine, yours):
        known = {one.record.node: one.record for one in gossip.members(1.0)}
        assert {node(200), node(201), node(300), ME, YOU} <= set(known)
        assert known[node(5)].capacity == 9
        assert node(6) not in known
    records = sum(len(one.records) for one in said if isinstance(one, Push))
    assert records <= 8, "what both had was not sent"
    said = _compared(mine, yours)
    assert said[-1] == Push()


def test_strangers_get_no_digest_for_a_summary() -> None:
    gossip = make_gossip(1)
    gossip.receive(STRANGER, Summary(bytes(2048)), 1.0)
    assert gossip.drain() == []
    gossip.receive(YOU, Summary(bytes(2048)), 1.0)
    ((_, pull),) = sent(gossip, Pull)
    assert {one.node for one in pull.digest} == {ME, YOU}
    assert not pull.reply


def test_a_member_that_asks_all_the_time_is_answered_now_and_then() -> None:
    gossip = make_gossip(1)
    answers = 0
    for step in range(1000):
        gossip.receive(YOU, Summary(bytes(2048)), step / 100)
        gossip.receive(YOU, Pull(reply=True), step / 100)
        answers += len(sent(gossip, Pull))
    assert answers == module.SYNCS[0] + 9


def test_records_are_served_to_one_node_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERVED", (5, 1.0))
    gossip = make_gossip(*range(1, 4))
    served = 0
    for _ in range(9):
        gossip.receive(YOU, Want((node(2), node(3))), 1.0)
        served += len(opened(sent(gossip, Push)))
    assert served == 4
    gossip.receive(YOU, Pull(), 1.0)
    assert sent(gossip, Push) == []


def test_who_takes_us_for_dead_by_an_older_record_is_shown_the_present_one() -> None:
    gossip = make_gossip(1)
    gossip.set_record(record(0, capacity=5), 1.0)
    gossip.drain()
    before = _record_of(gossip)
    gossip.receive(YOU, Ping(1, (Rumour(ME, 1, "dead"),)), 1.0)
    pushes = sent(gossip, Push)
    assert [push.records for _, push in pushes] == [(before,)], "without a new sequence"


def test_a_digest_is_no_testimony_but_makes_us_look() -> None:
    gossip = make_gossip(*range(1, 9))
    silence(gossip, 0.0, 0.5)
    digest = tuple(Rumour(node(number), 1, "dead") for number in range(2, 9))
    gossip.receive(YOU, Pull(digest), 0.5)
    assert set(liveness(gossip).values()) == {"alive"}
    assert sent(gossip, Ping) == []
    gossip.tick(1.5)
    assert 4 <= len(sent(gossip, Ping)) <= 5
    assert set(liveness(gossip).values()) == {"alive"}


def test_what_all_hold_for_dead_is_neither_doubted_nor_hoped_for() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 30.0)
    gossip.receive(node(2), Push((signed(2),)), 30.0)
    gossip.receive(node(2), Pull((Rumour(YOU, 1, "dead"), Rumour(node(2), 1, "alive"))), 30.0)
    assert len(gossip._rechecks._hopes) == 0
    assert len(gossip._rechecks._doubts) == 0


def test_what_was_found_and_is_not_so_any_more_is_not_told() -> None:
    gossip = make_gossip(1, 2)
    gossip.unreachable(YOU, 1.0)
    gossip.tick(1.5)
    gossip.receive(YOU, Push((signed(1, 2),)), 1.6)
    gossip.drain()
    gossip.receive(node(2), Ping(3), 1.7)
    ((_, ack),) = sent(gossip, Ack)
    assert ack.rumours == ()


def test_what_lies_in_the_future_is_told_to_nobody() -> None:
    gossip = make_gossip(1)
    later = first_sequence(1000 + 3_600_000)
    gossip.receive(node(2), Ping(1, clock=1000 + 3_700_000), 1.0)
    gossip.receive(node(2), Push((signed(2, later),)), 1.0)
    assert node(2) in liveness(gossip)
    for number in (3, 4, 5):
        gossip.receive(node(number), Ping(1, clock=2000), 1.0)
    assert node(2) in liveness(gossip), "it stays until a better one comes"
    gossip.drain()
    gossip.receive(YOU, Pull((Rumour(ME, 1, "alive"),), reply=True), 1.0)
    out = drained(gossip)
    told = {one.node for _, message in out for one in getattr(message, "digest", ())}
    assert told == {ME, YOU}
    assert {one.node for one in opened([pair for pair in out if isinstance(pair[1], Push)])} == {
        ME,
        YOU,
    }
    gossip.receive(node(2), Push((signed(2, 7, capacity=7),)), 1.0)
    assert {one.record.capacity for one in gossip.members(1.0)} == {0, 7}


def test_a_record_that_we_gave_up_for_the_networks_clock_is_not_outranked() -> None:
    ahead = Gossip(identity(0), random.Random(1), boot_ms=1000 + 3_600_000)
    given_up = first_sequence(1000 + 3_600_000)
    ahead.set_record(record(0), 0.0)
    for number in (1, 2, 3):
        ahead.receive(node(number), Push((signed(number),)), 0.0)
        ahead.receive(node(number), Ping(1, clock=1000), 0.0)
    assert own_record(ahead).sequence == first_sequence(1000)
    assert any("set the clock" in text for text in texts(ahead))
    ahead.receive(YOU, Push((signed(0, given_up),)), 1.0)
    assert own_record(ahead).sequence == first_sequence(1000)
    assert texts(ahead) == []


def test_a_dead_node_that_a_member_holds_for_alive_is_knocked_at() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 30.0)
    gossip.receive(node(2), Push((signed(2),)), 30.0)
    gossip.receive(node(2), Pull((Rumour(YOU, 1, "alive"),)), 30.0)
    gossip.drain()
    assert YOU in gossip._rechecks._hopes


def test_a_first_contact_that_did_not_answer_is_tried_again() -> None:
    gossip = make_gossip()
    gossip.pull_from(YOU)
    gossip.drain()
    gossip.tick(2 * SYNC_FIRST_S)
    assert [(to, type(one)) for to, one in gossip.drain()] == [(YOU, Push), (YOU, Pull)]


def test_two_records_under_one_sequence_are_told_of_once_and_cut_nobody_off() -> None:
    gossip = make_gossip()
    one, two, three = (signed(1, 5, version=version) for version in ("1", "2", "3"))
    gossip.receive(YOU, Push((one, two, three)), 1.0)
    gossip.receive(STRANGER, Push((three, two, one)), 2.0)
    told = [text for text in texts(gossip) if "two different records" in text]
    assert told == [text for text in told if text.startswith(short_text(YOU))]
    assert len(told) == 1
    assert gossip.counts.refusals["equivocation"] >= 2
    gossip.receive(YOU, Push((signed(1, 6, version="4"),)), 3.0)
    assert next(one for one in gossip.members(3.0) if one.record.node == YOU).record.version == "4"


def test_a_wiped_node_comes_back_under_its_old_key() -> None:
    gossip = make_gossip(1)
    silence(gossip, 0.0, 30.0)
    assert liveness(gossip, 30.0)[YOU] == "dead"
    wiped = Gossip(identity(1), random.Random(2), boot_ms=20_000)
    wiped.set_record(record(1, capacity=3), 0.0)
    wiped.pull_from(ME)
    for to, message in wiped.drain():
        assert to == ME
        gossip.receive(YOU, message, 30.0)
    assert liveness(gossip, 30.0)[YOU] == "alive"


def test_one_whose_clock_went_back_learns_its_old_sequence_and_outranks_it() -> None:
    gossip = make_gossip()
    gossip.receive(YOU, Push((signed(1, 9 << 20),)), 0.0)
    silence(gossip, 0.0, 30.0)
    back = Gossip(identity(1), random.Random(2), boot_ms=5)
    back.set_record(record(1, capacity=3), 0.0)
    back.pull_from(ME)
    _converse(gossip, back, 30.0)
    assert liveness(gossip, 30.0)[YOU] == "alive"
    (member,) = (one for one in gossip.members(30.0) if one.record.node == YOU)
    assert member.record.capacity == 3
    assert drained(gossip) == []


def test_a_crowded_table_takes_few_newcomers_of_each_sender_but_all_that_come_themselves() -> None:
    gossip = Gossip(identity(0), random.Random(1), boot_ms=1000, max_nodes=40)
    gossip.set_record(record(0), 0.0)
    flood = tuple(signed(number) for number in range(100, 160))
    gossip.receive(YOU, Push(flood), 1.0)
    assert len(gossip.members(1.0)) == 30 + 10
    gossip.receive(YOU, Push(flood), 1.0)
    assert gossip.counts.refusals["full"] > 0
    gossip.receive(node(2), Push((signed(2),)), 1.0)
    gossip.receive(node(3), Push((signed(3),)), 1.0)
    known = set(liveness(gossip, 1.0))
    assert {node(2), node(3), ME} <= known
    assert len(known) == 40
