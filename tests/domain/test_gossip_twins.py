"""Twins: two processes with one identity in a network with a third node both say so."""

from __future__ import annotations

import random

import pytest
from domain_samples import identity, node, record

from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.messages import Ping
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
