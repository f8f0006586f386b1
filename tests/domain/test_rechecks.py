"""Rechecks: few knocks at the dead, more when one came back, and a few doubts per second."""

from __future__ import annotations

import math
import random

import pytest
from domain_samples import node, signed

from diffuse_core.domain import rechecks as module
from diffuse_core.domain.directory import Directory
from diffuse_core.domain.rechecks import DOUBTS, KNOCKS, Rechecks


def _directory(dead: int) -> Directory:
    directory = Directory(random.Random(1))
    for number in range(dead):
        directory.admit(signed(number + 1), 0.0)
        directory.bury(node(number + 1), 0.0)
    return directory


def _knocks(rechecks: Rechecks, directory: Directory, live: int, start: float, end: float) -> int:
    count, now = 0, start
    while (now := max(now, rechecks.next_deadline())) < end:
        count += len(rechecks.knock(directory.dead, live, now))
        rechecks.follow(directory, live, now)
    return count


def test_nobody_dead_nobody_to_knock_at() -> None:
    rechecks = Rechecks(random.Random(1))
    rechecks.follow(_directory(0), 5, 1.0)
    assert rechecks.next_deadline() == math.inf
    assert rechecks.knock(_directory(0).dead, 5, 1.0) == []


@pytest.mark.parametrize(
    ("live", "dead", "least", "most"),
    [(1000, 1, 8, 14), (1000, 100, 100, 140), (20, 20, 330, 450)],
)
def test_all_nodes_together_knock_at_a_dead_one_about_once_a_second_at_most(
    live: int, dead: int, least: int, most: int
) -> None:
    rechecks, directory = Rechecks(random.Random(1)), _directory(dead)
    rechecks.follow(directory, live, 0.0)
    assert least <= _knocks(rechecks, directory, live, 0.0, 600.0) <= most


def test_when_one_came_back_there_are_more_knocks_soon_and_fewer_again_later() -> None:
    rechecks, directory = Rechecks(random.Random(1)), _directory(40)
    rechecks.follow(directory, 40, 0.0)
    sizes, now = [], 0.0
    for turn in range(10):
        now = rechecks.next_deadline()
        sizes.append(len(rechecks.knock(directory.dead, 40, now)))
        if turn < 4:
            for number in (2 * turn + 1, 2 * turn + 2):
                directory.admit(signed(number, 2), now)
                rechecks.follow(directory, 40, now)
            assert rechecks.next_deadline() == now + module.KNOCK_AGAIN_S
    assert sizes[0] == KNOCKS[0]
    assert max(sizes) == KNOCKS[1]
    assert sizes[-1] == KNOCKS[0]
    assert sizes[:4] == sorted(sizes[:4])


def test_those_that_others_hold_for_alive_come_first() -> None:
    rechecks, directory = Rechecks(random.Random(1)), _directory(50)
    rechecks.follow(directory, 50, 0.0)
    rechecks.hope(node(7))
    rechecks.hope(node(99))
    knocked = rechecks.knock(directory.dead, 50, 10.0)
    assert node(7) in knocked
    assert node(99) not in knocked, "it is not dead any more"
    assert len(knocked) == len(set(knocked))


def test_doubts_are_looked_into_a_few_at_a_time() -> None:
    rechecks = Rechecks(random.Random(1))
    for number in range(10):
        rechecks.doubt(node(number), 0.0)
    assert rechecks.doubted(0.5) == []
    seen: list[bytes] = []
    for now in (1.0, 2.0, 3.0, 4.0):
        some = rechecks.doubted(now)
        assert len(some) <= DOUBTS
        seen += some
    assert sorted(seen) == sorted(node(number) for number in range(10))
    assert rechecks.next_deadline() == math.inf


def test_pools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POOL", 2)
    rechecks, directory = Rechecks(random.Random(1)), _directory(9)
    rechecks.follow(directory, 9, 0.0)
    for number in range(1, 6):
        rechecks.doubt(node(number), 0.0)
        rechecks.hope(node(number))
    assert len(rechecks.doubted(9.0)) == 2
    assert len(rechecks._hopes) == 2
