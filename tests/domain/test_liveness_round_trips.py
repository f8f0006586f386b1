"""What round trips tell: no dialling in them, each one told, and coordinates that come of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from domain_samples import node, ordered, signed

from diffuse_core.domain.coordinates import SETTLED, Coordinate
from diffuse_core.domain.liveness import FailureDetector
from diffuse_core.domain.messages import Ack, Ping
from diffuse_core.domain.probes import Probes
from diffuse_core.domain.roster import Roster

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

A, B = ordered(1), ordered(2)


def _ping(detector: FailureDetector) -> int:
    (nonce,) = [step.nonce for _, step in detector.drain() if isinstance(step, Ping)]
    return nonce


@pytest.mark.parametrize(("met_at", "expected"), [(None, 0.4), (1.3, 0.1), (0.5, 0.4)])
def test_a_round_trip_begins_when_there_is_a_channel(
    met_at: float | None, expected: float
) -> None:
    told: list[tuple[NodeId, float]] = []
    detector = FailureDetector(
        ordered(9), random.Random(1), lambda about, rtt_s: told.append((about, rtt_s))
    )
    detector.alive(A, 0.0)
    if met_at == 0.5:
        detector.heard(A, met_at, met=True)
    detector.tick(1.0)
    nonce = _ping(detector)
    if met_at == 1.3:
        detector.heard(A, met_at, met=True)
        detector.heard(A, 1.35, met=True)
        detector.heard(B, 1.39, met=True)
    detector.ack(A, nonce, 1.4)
    assert detector.rtt(A) == pytest.approx(expected)
    assert told == [(A, pytest.approx(expected))]


def test_a_jump_of_the_clock_is_not_in_it() -> None:
    probes = Probes(random.Random(1))
    probe = probes.begin(A, 1.0, 1.0)
    assert probe is not None
    probes.met(A, 1.2)
    probes.shift(10.0)
    assert probe.sent_at(probe.nonce) == pytest.approx(11.2)


def test_members_tell_how_far_they_are_once_both_know_their_place() -> None:
    roster = Roster(node(1), random.Random(1), max_nodes=10)
    other = Roster(node(2), random.Random(2), max_nodes=10)
    roster.admit(signed(2), node(2), 0.0)
    for _ in range(SETTLED + 20):
        other._measured(node(1), 0.05)
        roster._measured(node(2), 0.05)
    assert roster.members(1.0)[0].distance_s is None, "it has not said where it is"
    record = signed(2, 2, coordinate=other.position.coordinate)
    roster.admit(record, node(2), 1.0)
    for _ in range(30):
        roster._measured(node(2), 0.05)
    assert roster.members(2.0)[0].distance_s == pytest.approx(0.05, rel=0.3)
    roster._measured(node(3), 0.05)
    roster.admit(signed(2, 3, left=True), node(2), 3.0)
    assert roster.members(4.0) == ()


def test_the_place_that_comes_with_an_answer_counts_only_of_who_is_known() -> None:
    heard, silent = (Roster(node(1), random.Random(1), max_nodes=10) for _ in range(2))
    for roster in (heard, silent):
        roster.admit(signed(2), node(2), 0.0)
        for _ in range(SETTLED):
            roster._measured(node(2), 0.05)
    place = Coordinate((50_000,) * 8, 1000, 10)
    for number in (2, 3):
        heard.answered(node(number), Ack(1, place=place), 1.0)
        silent.answered(node(number), Ack(1), 1.0)
    assert heard.position._heard == {node(2): place}
    for roster in (heard, silent):
        roster._measured(node(2), 0.05)
    assert heard.position.coordinate != silent.position.coordinate
    heard.admit(signed(2, 3, left=True), node(2), 3.0)
    assert not heard.position._heard
