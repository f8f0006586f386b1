"""The pool, a set that can be drawn from, and the round, in which each is taken once."""

from __future__ import annotations

import random

from domain_samples import ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.pool import Pool, Round


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=80))
def test_it_holds_what_a_set_would(steps: list[tuple[bool, int]]) -> None:
    pool, nodes = Pool(), set()
    for comes, number in steps:
        if comes:
            pool.add(ordered(number))
            nodes.add(ordered(number))
        else:
            pool.discard(ordered(number))
            nodes.discard(ordered(number))
        assert len(pool) == len(nodes)
        assert set(pool.all()) == nodes
        assert all((ordered(one) in pool) == (ordered(one) in nodes) for one in range(13))


def test_everybody_is_drawn_equally_often_and_nobody_twice() -> None:
    pool, rng = Pool(), random.Random(1)
    for number in range(10):
        pool.add(ordered(number))
    pool.discard(ordered(3))
    drawn = [one for _ in range(3000) for one in pool.sample(rng, 3)]
    assert {drawn.count(ordered(number)) // 100 for number in range(10) if number != 3} <= {
        8,
        9,
        10,
        11,
    }
    assert len(set(pool.sample(rng, 99))) == 9
    assert pool.sample(rng, 0) == []


def test_a_round_takes_everybody_once_in_another_order_each_time() -> None:
    known = {ordered(number): None for number in range(20)}
    taken = Round(random.Random(1))
    first, second = list(taken.take(known)), list(taken.take(known))
    assert set(first) == set(second) == set(known)
    assert len(first) == len(second) == 20
    assert first != second
    assert first == list(Round(random.Random(1)).take(known)), "a seed decides"


def test_who_comes_during_a_round_is_in_it_and_who_went_is_not() -> None:
    known = {ordered(number): None for number in range(20)}
    taken = Round(random.Random(1))
    first = next(taken.take(known))
    known[ordered(20)] = None
    taken.add(ordered(20), known)
    del known[ordered(3)]
    assert set(taken.take(known)) == set(known) - {first}


def test_a_round_stays_short_however_many_come_and_go() -> None:
    known = {ordered(number): None for number in range(5)}
    taken = Round(random.Random(1))
    for number in range(2000):
        passing = ordered(5 + number % 200)
        known[passing] = None
        taken.add(passing, known)
        assert len(taken) <= 12
        del known[passing]
