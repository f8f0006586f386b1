"""Twins: two processes with one identity in a network with a third node both say so."""

from __future__ import annotations

import random

import pytest
from domain_samples import identity, node, record, signed
from gossip_samples import BOOT, make_gossip, opened, own_record, sent

from diffuse_core.domain.exchange import REMINDERS
from diffuse_core.domain.gossip import TWIN_AGAIN_S, Gossip
from diffuse_core.domain.messages import Ping, Push
from diffuse_core.domain.narration import TWIN

NOW = 1_700_000_000_000
THIRD = node(3)


@pytest.mark.parametrize("later_ms", [-60_000, 5_000, 60_000])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_twins_tell_when_the_third_node_answers_now_one_and_now_the_other(
    later_ms: int, same: bool, seed: int
) -> None:
    rng = random.Random(seed)
    third = Gossip(identity(3), random.Random(3), boot_ms=NOW)
    third.set_record(record(3), 0.0)
    twins = [Gossip(identity(1), random.Random(n), boot_ms=NOW + n * later_ms) for n in (0, 1)]
    told: set[int] = set()
    for step in range(600):
        now = step * 0.05
        if step in (0, 100):
            joining = twins[step // 100]
            joining.set_record(record(1, version="a" if same or not step else "b"), now)
            joining.pull_from(THIRD)
        running = twins[: 1 if step < 100 else 2]
        for number, twin in enumerate(running):
            twin.tick(now)
            for to, message in twin.drain():
                if to == THIRD:
                    third.receive(node(1), message, now)
            if TWIN in twin.drain_events():
                told.add(number)
                assert len(running) == 2, "one alone has nothing to tell"
        third.tick(now)
        for to, message in third.drain():
            if to == node(1):
                rng.choice(running).receive(THIRD, message, now)
    assert told == {0, 1}


def test_one_that_was_restarted_is_no_twin() -> None:
    third = Gossip(identity(3), random.Random(3), boot_ms=NOW)
    third.set_record(record(3), 0.0)
    for life in range(2):
        gossip = Gossip(identity(1), random.Random(life), boot_ms=NOW + 30_000 * life)
        start = 30.0 * life
        gossip.set_record(record(1), start)
        gossip.pull_from(THIRD)
        for step in range(200):
            now = start + step * 0.05
            gossip.tick(now)
            third.tick(now)
            for to, message in gossip.drain():
                if to == THIRD:
                    third.receive(node(1), message, now)
            for to, message in third.drain():
                if to == node(1):
                    gossip.receive(THIRD, message, now)
            assert TWIN not in gossip.drain_events()
    gossip.receive(node(1), Ping(1), 60.0)
    assert gossip.drain() == [], "what we ourselves send to us means nothing"


class Town:
    """Nodes 3 and 4, which know each other, and now one, now two processes that are node 1.

    What goes to node 1 reaches only some process that talked with the sender last.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.others = {node(n): _process(n, NOW) for n in (3, 4)}
        self.told: dict[Gossip, int] = {}
        self._lines: dict[bytes, Gossip] = {}
        for gossip in self.others.values():
            gossip.pull_from(node(3 if gossip is self.others[node(4)] else 4))

    def join(self, twin: Gossip, contact: int, **changes: str) -> None:
        twin.set_record(record(1, **changes), self.now)
        twin.pull_from(node(contact))
        self.told[twin] = 0

    def run(self, seconds: float, *twins: Gossip) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            for name, gossip in (*((node(1), twin) for twin in twins), *self.others.items()):
                gossip.tick(self.now)
                self.deliver(name, gossip, twins)
            for twin in twins:
                self.told[twin] += twin.drain_events().count(TWIN)

    def deliver(self, name: bytes, gossip: Gossip, twins: tuple[Gossip, ...]) -> None:
        for to, message in gossip.drain():
            if to in self.others:
                if name == node(1):
                    self._lines[to] = gossip
                self.others[to].receive(name, message, self.now)
            elif (receiver := self._lines.get(name)) in twins:
                receiver.receive(name, message, self.now)

    def lists(self, number: int) -> set[str]:
        """What the others show of node `number`: the version of each living one."""
        return {
            member.record.version
            for gossip in self.others.values()
            for member in gossip.members(self.now)
            if member.record.node == node(number) and member.liveness == "alive"
        }


def _process(number: int, boot_ms: int) -> Gossip:
    gossip = Gossip(identity(number), random.Random(boot_ms % 97 + number), boot_ms=boot_ms)
    if number != 1:
        gossip.set_record(record(number), 0.0)
    return gossip


@pytest.mark.parametrize("later_ms", [-20_000, 20_000])
@pytest.mark.parametrize("contact", [3, 4])
@pytest.mark.parametrize("first", [True, False])
def test_the_farewell_of_a_copy_hides_the_survivor_for_seconds_only(
    later_ms: int, contact: int, *, first: bool
) -> None:
    town = Town()
    survivor, copy = _process(1, NOW), _process(1, NOW + later_ms)
    town.run(1.0)
    joining = [(survivor, 3, "real"), (copy, contact, "copy")]
    running: list[Gossip] = []
    for twin, where, version in joining if first else reversed(joining):
        town.join(twin, where, version=version)
        running.append(twin)
        town.run(3.0, *running)
    copy.leave(town.now)
    town.deliver(node(1), copy, (survivor,))
    town.run(5.0, survivor)
    assert town.lists(1) == {"real"}
    assert all(len(gossip.members(town.now)) == 3 for gossip in town.others.values())
    town.run(30.0, survivor)
    assert town.lists(1) == {"real"}
    assert town.told[survivor] == 1


def test_a_farewell_that_the_survivor_only_meets_later_is_outranked() -> None:
    """The copy spoke with a node that the survivor had no contact with yet."""
    town = Town()
    survivor, copy = _process(1, NOW), _process(1, NOW + 20_000)
    town.join(copy, 4)
    town.run(2.0, copy)
    copy.leave(town.now)
    town.deliver(node(1), copy, ())
    town.run(1.0)
    assert town.lists(1) == set()
    town.join(survivor, 3, version="real")
    town.run(3.0, survivor)
    assert town.lists(1) == {"real"}


def test_who_left_and_speaks_is_shown_its_farewell_a_few_times() -> None:
    third = make_gossip(1)
    farewell = signed(1, 9, left=True)
    third.receive(node(1), Push((farewell,)), 1.0)
    assert third.drain() == [], "a farewell itself is no sign of life"
    for nonce in range(50):
        third.receive(node(1), Ping(nonce), 1.0)
    shown = sent(third, Push)
    assert shown == [(node(1), Push((farewell,), last=False))] * REMINDERS[0]


def test_who_shows_an_earlier_record_of_itself_is_shown_the_later_one() -> None:
    third = make_gossip()
    third.receive(node(1), Push((signed(1, 9),)), 1.0)
    third.receive(node(2), Push((signed(2), signed(1, 5))), 1.0)
    third.receive(node(1), Push((signed(1, 9),)), 1.0)
    assert sent(third, Push) == []
    third.receive(node(1), Push((signed(1, 5),)), 1.0)
    assert [one.sequence for one in opened(sent(third, Push))] == [9]


def test_who_refused_our_later_record_as_too_early_is_shown_it_again() -> None:
    survivor = make_gossip(1)
    farewell = Push((signed(0, BOOT + 7, left=True),))
    for now in (1.0, 1.1):
        survivor.receive(node(1), farewell, now)
        assert [one.sequence for one in opened(sent(survivor, Push))] == [BOOT + 8]


def test_records_with_our_key_are_answered_at_a_bounded_rate_and_told_now_and_then() -> None:
    gossip = make_gossip(1)
    told = 0
    published: set[int] = set()
    for step in range(600):
        now = 1.0 + step * 0.1
        sequence = BOOT + 2 + 2 * step
        gossip.receive(node(1), Push((signed(0, sequence, left=True),)), now)
        gossip.tick(now)
        told += gossip.drain_events().count(TWIN)
        gossip.drain()
        published.add(own_record(gossip).sequence)
    assert told == 1
    assert 10 < len(published) < 20
    assert not own_record(gossip).left
    gossip.receive(node(1), Push((signed(0, sequence + 9),)), 1.0 + TWIN_AGAIN_S)
    assert gossip.drain_events().count(TWIN) == 1
    assert own_record(gossip).sequence == sequence + 10


def test_what_is_not_signed_with_our_key_makes_us_publish_nothing() -> None:
    gossip = make_gossip(1)
    before = own_record(gossip)
    ours, other = signed(0, BOOT + 50, left=True), signed(1, 5)
    forged = type(ours)(ours.payload, other.signature)
    for step in range(50):
        gossip.receive(node(1), Push((forged, signed(0, BOOT))), 1.0 + step)
    gossip.tick(100.0)
    assert own_record(gossip) == before
    assert TWIN not in gossip.drain_events()
