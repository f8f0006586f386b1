"""Wants: one node is asked at a time, and floods occupy only so much."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from domain_samples import ordered

from diffuse_core.domain import wants as module
from diffuse_core.domain.wants import PATIENCE_S, Wants

if TYPE_CHECKING:
    import pytest

A, B, C = ordered(1), ordered(2), ordered(3)
X, Y = ordered(8), ordered(9)


def test_the_first_announcer_is_asked_and_then_the_others() -> None:
    wants = Wants()
    assert wants.announced(X, 5, A, 0.0)
    assert not wants.announced(X, 5, A, 0.0)
    assert not wants.announced(X, 5, B, 0.1)
    assert not wants.announced(X, 5, B, 0.1)
    assert not wants.announced(X, 5, C, 0.1)
    assert wants.next_deadline() == PATIENCE_S[1]
    assert wants.overdue(0.2) == {}
    assert wants.overdue(0.5) == {B: [X]}
    assert wants.overdue(1.0) == {C: [X]}
    assert wants.overdue(1.5) == {}
    assert (len(wants), wants.next_deadline()) == (0, math.inf)
    assert wants.announced(X, 5, A, 1.6), "who announces it later may be asked again"


def test_what_came_is_not_wanted_any_more_unless_later_was_announced() -> None:
    wants = Wants()
    wants.announced(X, 5, A, 0.0)
    wants.announced(Y, 5, A, 0.0)
    wants.announced(Y, 6, B, 0.0)
    wants.got(X, 5, A, 0.1)
    wants.got(Y, 5, A, 0.1)
    wants.got(C, 5, A, 0.1)
    assert len(wants) == 1
    assert wants.overdue(0.5) == {B: [Y]}
    wants.got(Y, 7, C, 0.6)
    assert len(wants) == 0


def test_patience_follows_what_answers_take() -> None:
    quick, slow = Wants(), Wants()
    for turn in range(60):
        for wants, seconds in ((quick, 0.001), (slow, 0.9)):
            wants.announced(X, turn, A, float(turn))
            wants.got(X, turn, A, turn + seconds)
    assert quick.patience == PATIENCE_S[0]
    assert slow.patience == PATIENCE_S[2]
    quick.announced(X, 99, A, 100.0)
    quick.got(X, 99, B, 150.0)
    assert quick.patience == PATIENCE_S[0], "what another sent says nothing about the asked"


def test_a_flood_of_announcements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WANTED", 5)
    monkeypatch.setattr(module, "MAX_ASKED_OF_ONE", 3)
    wants = Wants()
    asked = [wants.announced(ordered(number), 1, A, 0.0) for number in range(20, 25)]
    assert asked == [True, True, True, False, False]
    asked = [wants.announced(ordered(number), 1, B, 0.0) for number in range(30, 35)]
    assert asked == [True, True, False, False, False]
    wants.got(ordered(20), 1, A, 0.1)
    assert wants.announced(ordered(40), 1, A, 0.1)
    assert wants.overdue(9.0) == {}
    assert all(wants.announced(ordered(number), 1, A, 9.0) for number in range(50, 53))
