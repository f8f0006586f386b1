"""Strangers with slow clocks cut nobody off, be it alone or in company."""

from __future__ import annotations

import random

from domain_samples import identity, node, record

from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.messages import Ping

NOW = 1_700_000_000_000
SLOW = [node(number) for number in range(10, 15)]


class _Pair:
    """Two nodes that hear each other at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gossips = [Gossip(identity(n), random.Random(n), boot_ms=NOW) for n in (1, 2)]
        self.ids = [node(1), node(2)]
        self.say("first")

    def say(self, version: str) -> None:
        for number, gossip in enumerate(self.gossips, 1):
            gossip.set_record(record(number, version=version), self.now)

    def lie(self) -> None:
        for liar in SLOW:
            self.gossips[0].receive(liar, Ping(1, clock=NOW // 2), self.now)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            for sender, gossip in zip(self.ids, self.gossips, strict=True):
                gossip.tick(self.now)
                for to, message in gossip.drain():
                    if to in self.ids:
                        self.gossips[self.ids.index(to)].receive(sender, message, self.now)

    def versions(self) -> set[str]:
        seen = [gossip.members(self.now) for gossip in self.gossips]
        assert all(len(members) == 2 for members in seen)
        return {one.record.version for members in seen for one in members}


def test_slow_strangers_do_not_cut_two_nodes_off_from_each_other() -> None:
    pair = _Pair()
    pair.gossips[0].pull_from(node(2))
    pair.run(2.0)
    for number in range(10):
        pair.lie()
        pair.say(f"v{number}")
        pair.run(2.0)
    assert pair.versions() == {"v9"}
    told = [text for gossip in pair.gossips for _, text in gossip.drain_events()]
    assert not any("clock" in text for text in told)


def test_a_lone_node_is_not_set_back_by_strangers_and_can_join() -> None:
    pair = _Pair()
    pair.lie()
    pair.gossips[0].pull_from(node(2))
    pair.run(5.0)
    pair.lie()
    pair.say("later")
    pair.run(3.0)
    assert pair.versions() == {"later"}
