"""The agenda: the earliest deadline first, whatever moved, and no more kept than is due."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.agenda import Agenda

KEYS = st.integers(0, 9)
TIMES = st.integers(0, 50).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("drop"), KEYS, TIMES),
        st.tuples(st.just("take"), KEYS, TIMES),
        st.tuples(st.just("shift"), KEYS, TIMES),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_it_does_what_a_plain_table_would(steps: list[tuple[str, int, float]]) -> None:
    agenda: Agenda[int] = Agenda()
    table: dict[int, float] = {}
    for what, key, at in steps:
        if what == "set":
            agenda.set(key, at)
            table[key] = at
        elif what == "drop":
            agenda.drop(key)
            table.pop(key, None)
        elif what == "take":
            due = agenda.take(at)
            assert [table[one] for one in due] == sorted(table[one] for one in due)
            assert set(due) == {one for one, time in table.items() if time <= at}
            table = {one: time for one, time in table.items() if time > at}
        else:
            agenda.shift(at)
            table = {one: time + at for one, time in table.items()}
        assert agenda.next() == min(table.values(), default=math.inf)
        assert len(agenda) == len(table)


def test_deadlines_that_keep_moving_take_no_memory() -> None:
    agenda: Agenda[str] = Agenda()
    for number in range(10_000):
        agenda.set("one", float(number))
        agenda.set("other", -float(number))
    assert len(agenda._heap) < 200
    assert agenda.take(math.inf) == ["other", "one"]


def test_the_same_deadline_twice_is_due_once() -> None:
    agenda: Agenda[str] = Agenda()
    for at in (1.0, 1.0, 2.0, 1.0):
        agenda.set("one", at)
    assert agenda.take(1.0) == ["one"]
    assert agenda.take(5.0) == []
