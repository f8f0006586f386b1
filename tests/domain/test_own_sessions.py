"""A client counts what it has placed itself until records tell of it."""

from __future__ import annotations

from domain_samples import node, record

from diffuse_core.domain.own_sessions import LAG_S, OwnSessions
from diffuse_core.domain.records import Load

A, B = node(1), node(2)


def _said(sequence: int, sessions: int) -> object:
    return record(1, sequence, load=Load(sessions=sessions))


def test_what_was_placed_after_the_record_came_is_added() -> None:
    own = OwnSessions()
    assert own.estimate(A, _said(1, 2), 0.0) == 2
    own.hold("first", [A, B], 1.0)
    own.hold("second", [A], 1.5)
    assert own.estimate(A, _said(1, 2), 2.0) == 4
    assert (own.count(A), own.count(B), own.count(node(3))) == (2, 1, 0)
    assert own.estimate(A, _said(2, 4), 3.0) == 4, "the new record tells of them"


def test_what_was_placed_just_before_the_record_came_may_not_be_in_it() -> None:
    own = OwnSessions()
    own.hold("first", [A], 3.0)
    assert own.estimate(A, _said(2, 0), 3.0 + LAG_S / 2) == 1
    own.hold("second", [A], 4.0)
    assert own.estimate(A, _said(3, 5), 4.0 + 2 * LAG_S) == 5


def test_never_less_than_what_runs_there_for_certain() -> None:
    own = OwnSessions()
    for key in range(8):
        own.hold(key, [A], 0.0)
    assert own.estimate(A, _said(2, 1), 5.0) == 8


def test_another_route_replaces_the_first_and_the_end_takes_it_away() -> None:
    own = OwnSessions()
    own.hold("one", [A], 0.0)
    own.hold("one", [B], 1.0)
    assert own.estimate(A, _said(1, 0), 2.0) == 0
    assert own.estimate(B, record(2), 2.0) == 1
    own.hold("one", [B, A], 4.0)
    assert own.estimate(B, record(2), 5.0) == 1
    assert own.estimate(B, record(2, 2), 5.0) == 1, "on B it was all the time"
    assert own.estimate(A, _said(2, 1), 4.1) == 2
    own.drop("one")
    own.drop("one")
    assert own.estimate(B, record(2), 3.0) == 0
