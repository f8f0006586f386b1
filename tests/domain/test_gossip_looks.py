"""Looks: who is no member gets all we know now and then, and is told at once when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from domain_samples import node, signed
from gossip_samples import STRANGER, make_gossip, opened

from diffuse_core.domain import exchange as module
from diffuse_core.domain.directory import MAX_NODES
from diffuse_core.domain.exchange import BUSY, LOOKS, MAX_ANSWERS, SHOWN
from diffuse_core.domain.messages import Pull, Push
from diffuse_core.domain.reconcile import RUMOUR_BYTES, weight
from diffuse_core.domain.records import MAX_RECORD_BYTES

if TYPE_CHECKING:
    import pytest

    from diffuse_core.domain.gossip import Gossip
    from diffuse_core.domain.identity import NodeId


def _look(gossip: Gossip, by: NodeId, now: float, pull: Pull | None = None) -> list[Any]:
    gossip.receive(by, pull or Pull(), now)
    return [message for _, message in gossip.drain()]


def test_a_stranger_that_pulls_all_the_time_silences_nobody_else() -> None:
    gossip = make_gossip(*range(1, 20))
    full = busy = 0
    for step in range(1000):
        (answer,) = _look(gossip, STRANGER, step / 100)
        full, busy = full + (answer != BUSY), busy + (answer == BUSY)
    assert full == LOOKS[0] + int(10 * LOOKS[1]) - 1
    assert busy == 1000 - full
    (answer,) = _look(gossip, node(500), 10.0)
    assert len(opened([(STRANGER, answer)])) == 20
    (answer,) = _look(gossip, STRANGER, 16.0)
    assert len(opened([(STRANGER, answer)])) == 20, "after a few seconds it may look again"


def test_all_strangers_together_are_shown_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    gossip = make_gossip(1, 2, 3)
    (push,) = _look(gossip, STRANGER, 0.0)
    size = sum(weight(one) + RUMOUR_BYTES for one in push.records)
    monkeypatch.setattr(module, "SHOWN", (3.0 * size, size / 10))
    gossip = make_gossip(1, 2, 3)
    answers = [_look(gossip, node(500 + number), 1.0)[0] for number in range(9)]
    assert [isinstance(answer, Push) for answer in answers] == [True] * 3 + [False] * 6
    assert set(answers[3:]) == {BUSY}
    assert _look(gossip, node(600), 12.0) != [BUSY]


def test_one_asker_cannot_exhaust_what_is_for_all() -> None:
    largest = MAX_NODES * (MAX_RECORD_BYTES + 200)
    assert LOOKS[0] * largest <= SHOWN[0]
    assert LOOKS[1] * largest <= SHOWN[1]


def test_who_comes_when_too_many_ask_at_once_is_told() -> None:
    gossip = make_gossip(1)
    for number in range(MAX_ANSWERS + 5):
        gossip.receive(node(500 + number), Pull(), 1.0)
    answers = [message for _, message in gossip.drain()]
    assert answers.count(BUSY) == 5
    assert len(answers) == MAX_ANSWERS + 5


def test_a_node_whose_record_we_did_not_take_is_not_told_that() -> None:
    gossip = make_gossip(1)
    pull = Pull(reply=False, clock=1000)
    answers = [_look(gossip, STRANGER, 1.0, pull) for _ in range(19)]
    assert [len(answer) for answer in answers] == [1] * LOOKS[0] + [0] * (19 - LOOKS[0])


def test_members_are_answered_as_before() -> None:
    gossip = make_gossip(1)
    gossip.receive(node(1), Push((signed(1, 2),)), 1.0)
    answers = [_look(gossip, node(1), 1.0) for _ in range(6)]
    assert all(isinstance(answer[0], Push) for answer in answers)
