"""The publisher: rising sequences, changes at once but not too often, load in its turn."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from domain_samples import holding, identity, node, record

from diffuse_core.domain.coordinates import SETTLED, Position
from diffuse_core.domain.publisher import (
    KEPT_FOR_NEWS,
    LOAD_INTERVAL_S,
    LOADS_PER_S,
    MOVE_DOUBLED_MOST,
    MOVE_INTERVAL_S,
    MOVES_PER_S,
    SESSIONS_INTERVAL_S,
    Publisher,
)
from diffuse_core.domain.records import Load, Record, first_sequence, open_record
from diffuse_core.errors import UsageError

BOOT = first_sequence(1000)


def _published(**changes: Any) -> Publisher:
    publisher = Publisher(identity(1), 1000)
    publisher.wish(record(1, **changes))
    publisher.publish(0.0)
    return publisher


def _say(publisher: Publisher, now: float, members: int = 5, **changes: Any) -> Record | None:
    """Publish when it is time for what is wished for."""
    publisher.wish(record(1, **changes))
    return _turn(publisher, now, members)


def _turn(publisher: Publisher, now: float, members: int = 5) -> Record | None:
    return publisher.publish(now)[0] if now >= publisher.due_at(members, now) else None


def test_without_a_draft_nothing_is_due() -> None:
    publisher = Publisher(identity(1), 1000)
    assert publisher.due_at(5, 0.0) == math.inf
    publisher.reassert()
    assert publisher.due_at(5, 0.0) == math.inf
    with pytest.raises(ValueError, match="wish first"):
        publisher.publish(0.0)


def test_records_are_signed_under_rising_sequences() -> None:
    publisher = Publisher(identity(1), 1000)
    publisher.wish(record(7, 99))
    assert publisher.due_at(5, 3.0) == 3.0
    said, signed = publisher.publish(3.0)
    assert (said.node, said.sequence) == (node(1), BOOT)
    assert open_record(signed) == said == publisher.standing
    assert publisher.due_at(5, 3.0) == math.inf
    again = _say(publisher, 4.0, capacity=5)
    assert again is not None
    assert again.sequence == BOOT + 1
    assert _say(publisher, 5.0, capacity=5) is None, "it says nothing new"


def test_what_no_one_would_accept_is_refused_and_changes_nothing() -> None:
    publisher = _published()
    with pytest.raises(UsageError, match="shorter addresses"):
        publisher.wish(record(1, addresses=("ü" * 128,) * 9))
    with pytest.raises(UsageError):
        publisher.wish(record(1, holding=holding(20, 31)))
    assert publisher.due_at(5, 1.0) == math.inf


def test_many_changes_in_a_row_wait_and_the_latest_counts() -> None:
    publisher = _published()
    said = [_say(publisher, 1.0, capacity=number) for number in range(1, 9)]
    assert said[:5] == [one for one in said if one is not None]
    due = publisher.due_at(5, 1.0)
    assert 1.0 < due < 2.5
    late = _turn(publisher, due)
    assert late is not None
    assert late.capacity == 8
    assert late.sequence == BOOT + 6


def test_ten_minutes_of_changes_stay_below_what_others_take() -> None:
    publisher = _published()
    said = 0
    for step in range(6000):
        said += _say(publisher, step / 10, capacity=step) is not None
    assert said <= 600 * 0.8 + 6


def test_load_alone_takes_its_turn_which_comes_later_in_larger_networks() -> None:
    publisher = _published()
    assert _say(publisher, 1.0, load=Load(sessions=1)) is not None, "the first at once"
    assert _say(publisher, 1.1, load=Load(sessions=2)) is None
    assert publisher.due_at(5, 1.1) == 1.0 + SESSIONS_INTERVAL_S
    assert publisher.due_at(1000, 1.1) == 1.0 + 1000 / LOADS_PER_S
    assert _turn(publisher, 1.4) is None
    said = _turn(publisher, 1.5)
    assert said is not None
    assert said.load.sessions == 2
    assert _say(publisher, 2.0, load=Load(sessions=2, step_ms=9.0)) is None
    assert publisher.due_at(5, 2.0) == 1.5 + LOAD_INTERVAL_S, "that is less urgent"
    assert _say(publisher, 3.1, load=Load(sessions=3), capacity=7) is not None
    assert _say(publisher, 3.2, load=Load(sessions=2)) is not None, "the capacity changed"


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        (Load(sessions=1), Load(sessions=2), True),
        (Load(kv_used=100), Load(kv_used=115), False),
        (Load(kv_used=100), Load(kv_used=130), True),
        (Load(kv_budget=100), Load(kv_budget=50), True),
        (Load(tokens_per_s=10.0), Load(tokens_per_s=9.0), False),
        (Load(tokens_per_s=10.0), Load(), True),
        (Load(step_ms=10.0), Load(step_ms=11.0), False),
        (Load(step_ms=10.0), Load(step_ms=20.0), True),
        (Load(), Load(), False),
    ],
)
def test_small_changes_of_load_are_not_worth_a_record(
    before: Load, after: Load, matters: bool
) -> None:
    publisher = _published(load=before)
    assert (_say(publisher, 100.0, load=after) is not None) == matters


def test_what_is_said_of_us_is_answered_at_once_a_few_times_and_then_in_turn() -> None:
    publisher = _published()
    answered = []
    for step in range(600):
        publisher.reassert()
        answered.append(_turn(publisher, step / 10) is not None)
    assert answered[0]
    assert not answered[1], "not twice within 0.2 s"
    assert answered[2]
    assert 15 <= sum(answered) <= 18
    assert publisher.standing is not None
    assert publisher.standing.sequence == BOOT + sum(answered)


def test_a_record_of_an_earlier_run_is_outranked() -> None:
    publisher = Publisher(identity(1), 1000)
    publisher.outrank(BOOT + 50)
    publisher.outrank(BOOT + 7)
    publisher.wish(record(1))
    assert publisher.publish(0.0)[0].sequence == BOOT + 51


def test_a_sequence_in_the_networks_future_is_given_up() -> None:
    publisher = Publisher(identity(1), 9_000_000)
    assert not publisher.rebase(1000, BOOT)
    publisher.wish(record(1))
    publisher.publish(0.0)
    assert not publisher.rebase(9_000_000, first_sequence(9_000_000))
    assert publisher.rebase(1000, BOOT)
    assert publisher.publish(1.0)[0].sequence == BOOT
    assert not publisher.rebase(1000, BOOT)


def test_a_farewell_says_that_the_slice_is_given_up() -> None:
    publisher = _published(holding=holding(0, 10))
    assert publisher.standing is not None
    publisher.wish_farewell(publisher.standing)
    said, _ = publisher.publish(1.0)
    assert said.left
    assert said.holding == holding(0, 10, "leaving")


def _moving() -> tuple[Publisher, Position]:
    position = Position(node(1))
    publisher = Publisher(identity(1), 1000, position)
    publisher.wish(record(1))
    publisher.publish(0.0)
    return publisher, position


def _pull(position: Position, times: int, rtt_s: float = 0.02) -> None:
    for turn in range(times):
        position.measured(node(turn % 3), rtt_s, None)


def test_where_we_are_goes_out_by_itself_only_now_and_then() -> None:
    publisher, position = _moving()
    assert publisher.due_at(5, 1.0) == math.inf
    _pull(position, SETTLED)
    assert publisher.due_at(5, 1.0) == MOVE_INTERVAL_S
    assert MOVE_INTERVAL_S < publisher.due_at(3000, 1.0) < 3000 / MOVES_PER_S
    said = _turn(publisher, MOVE_INTERVAL_S)
    assert said is not None
    assert said.coordinate == position.coordinate
    _pull(position, 3)
    assert said.coordinate != position.coordinate
    assert publisher.due_at(5, 100.0) == math.inf, "that is about the same place"
    _pull(position, 60, rtt_s=0.2)
    assert publisher.due_at(5, 12.0) == 3 * MOVE_INTERVAL_S


def test_a_place_that_moves_on_and_on_is_told_less_and_less_often() -> None:
    publisher, position = _moving()
    at = [0.0]
    for turn in range(8):
        _pull(position, 40, rtt_s=(0.02, 0.5)[turn % 2])
        due = publisher.due_at(5, at[-1])
        assert _turn(publisher, due) is not None
        at.append(due)
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert pauses[:4] == [10.0, 20.0, 40.0, 80.0]
    assert set(pauses[4:]) == {MOVE_DOUBLED_MOST * MOVE_INTERVAL_S}


def test_nodes_that_started_together_do_not_all_tell_their_places_at_once() -> None:
    """And all together not many a second, on average."""
    turns = []
    for number in range(200):
        position = Position(node(number))
        publisher = Publisher(identity(number), 1000, position)
        publisher.wish(record(number))
        publisher.publish(0.0)
        _pull(position, SETTLED)
        turns.append(publisher.due_at(200, 1.0))
    assert min(turns) == MOVE_INTERVAL_S
    assert 0.9 * 200 / MOVES_PER_S < max(turns) <= 200 / MOVES_PER_S
    starts = range(10, int(200 / MOVES_PER_S), 20)
    many = [sum(start <= one < start + 20 for one in turns) for start in starts]
    assert max(many) < 2.5 * 20 * MOVES_PER_S


def test_where_we_are_goes_with_every_other_record() -> None:
    publisher, position = _moving()
    _pull(position, SETTLED)
    said = _say(publisher, 1.0, load=Load(sessions=1))
    assert said is not None
    assert said.coordinate == position.coordinate is not None
    assert publisher.due_at(5, 5.0) == math.inf
    _pull(position, 1)
    assert _say(publisher, 9.0, load=Load(sessions=1)) is None


def test_the_wait_for_a_turn_is_load() -> None:
    publisher = _published(load=Load(wait_ms=10.0))
    assert _say(publisher, 100.0, load=Load(wait_ms=11.0)) is None
    assert _say(publisher, 100.0, load=Load(wait_ms=15.0)) is not None


def test_load_leaves_room_for_news() -> None:
    publisher = _published()
    said = [
        _say(publisher, step / 10, load=Load(sessions=step)) is not None for step in range(1, 101)
    ]
    assert 8 < sum(said) < 14
    for more in range(int(KEPT_FOR_NEWS) - 1):
        assert _say(publisher, 10.1, capacity=more + 1) is not None
