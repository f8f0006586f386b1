"""Wants: one node is asked at a time, and floods occupy only so much."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from domain_samples import ordered

from diffuse_core.domain import wants as module
from diffuse_core.domain.identity import NodeId
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


def test_who_announces_what_does_not_come_is_asked_for_less_until_it_answers() -> None:
    wants = Wants()
    liked: list[int] = []
    for turn in range(8):
        crowd = _ids(600, turn)
        liked.append(sum(wants.announced(one, 1, A, 2.0 * turn) for one in crowd))
        wants.overdue(2.0 * turn + 1)
    assert liked == [512, 256, 128, 64, 32, 16, 8, 8]
    for turn in range(8, 15):
        crowd = [one for one in _ids(600, turn) if wants.announced(one, 1, A, 2.0 * turn)]
        liked.append(len(crowd))
        for one in crowd:
            wants.got(one, 1, A, 2.0 * turn)
    assert liked[8:] == [8, 16, 32, 64, 128, 256, 512]
    assert not wants._trust


def test_who_sent_what_it_has_is_not_blamed_for_what_others_made_up() -> None:
    wants = Wants()
    wants.announced(X, 5, A, 0.0)
    wants.announced(X, 99, B, 0.0)
    wants.got(X, 5, A, 0.1)
    assert wants.overdue(1.0) == {B: [X]}
    assert wants.overdue(2.1) == {}
    assert set(wants._trust) == {B}


def test_a_record_that_nobody_has_is_given_up_however_often_it_is_announced() -> None:
    wants = Wants()
    wants.announced(X, 5, A, 0.0)
    wants.announced(Y, 5, A, 0.0)
    now = 0.0
    while len(wants):
        now += 0.1
        assert now < module.LIFETIME_S + 1
        for one in (A, B, C) if now < module.LIFETIME_S else ():
            wants.announced(X, 5, one, now)
        wants.overdue(now)
    assert now > 4.0


def test_a_full_table_makes_room_for_who_has_less_than_its_share() -> None:
    wants = Wants()
    liars = [ordered(number) for number in range(10, 14)]
    for number, liar in enumerate(liars):
        for one in _ids(600, number):
            wants.announced(one, 1, liar, 0.0)
    assert len(wants) == module.MAX_WANTED
    honest = [one for one in _ids(600, 9) if wants.announced(one, 1, A, 0.1)]
    assert len(honest) == module.MAX_WANTED // 5 - 1
    assert not any(wants.announced(one, 1, liars[0], 0.1) for one in _ids(600, 8))
    assert len(wants) == module.MAX_WANTED
    assert sum(len(asked) for asked in wants._asked.values()) == module.MAX_WANTED


def test_what_is_held_against_announcers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOUBTED", 4)
    wants = Wants()
    for number in range(20):
        wants.announced(X, 1, ordered(20 + number), float(number))
        wants.overdue(number + 0.9)
    assert len(wants._trust) == 4


def _ids(count: int, kind: int) -> list[NodeId]:
    return [NodeId(bytes([kind]) * 28 + number.to_bytes(4, "big")) for number in range(count)]
