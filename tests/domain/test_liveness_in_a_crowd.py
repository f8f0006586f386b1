"""The failure detector in a large network: quiet at first, then told, looked into by all."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from domain_samples import ordered

from diffuse_core.domain.liveness import SPARE_S, FailureDetector
from diffuse_core.domain.messages import Ping
from diffuse_core.domain.suspicion import LOOK_WITHIN_S, QUIET_S, SUSPICION_LEAST_S

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

ME, A, B, C, D = (ordered(number) for number in range(5))
CROWD = [ordered(number) for number in range(5, 105)]
"""So many that a failure is kept quiet at first."""


def _detector(*nodes: NodeId, seed: int = 1) -> FailureDetector:
    detector = FailureDetector(ME, random.Random(seed))
    for node in nodes:
        detector.alive(node, 0.0)
    return detector


def _pings(detector: FailureDetector) -> dict[NodeId, int]:
    return {node: step.nonce for node, step in detector.drain() if isinstance(step, Ping)}


def _run_to(detector: FailureDetector, end: float) -> None:
    """Tick whenever something is due, until `end`; all answer but A."""
    while (now := detector.next_deadline()) <= end:
        detector.tick(now)
        for node, step in detector.drain():
            if isinstance(step, Ping) and node != A:
                detector.ack(node, step.nonce, now)


def test_others_who_found_it_dead_shorten_the_wait_but_never_end_it() -> None:
    detector = _detector(A, B, C, *CROWD)
    detector.probe(A, 1.0)
    _run_to(detector, 2.1)
    detector.accuse(A, B, 3.0, dead=True)
    detector.accuse(A, C, 3.0, dead=True)
    _run_to(detector, 2.0 + SUSPICION_LEAST_S - 0.01)
    assert detector.state(A) == "suspect"
    _run_to(detector, 2.0 + SUSPICION_LEAST_S + 0.01)
    assert detector.state(A) == "dead"
    detector.accuse(A, D, 7.1, dead=True)
    assert detector.state(A) == "dead"


def test_in_a_crowd_a_first_failure_is_kept_quiet_and_looked_into() -> None:
    detector = _detector(A, *CROWD)
    detector.probe(A, 1.0)
    _run_to(detector, 2.0 + QUIET_S - 0.1)
    assert (detector.state(A), detector.stance(A)) == ("suspect", "alive")
    assert detector.drain_testimony().count(A) == 0
    _run_to(detector, 4.0 + QUIET_S)
    assert detector.stance(A) == "suspect"
    assert detector.drain_testimony().count(A) == 1


def test_a_node_that_is_back_before_that_was_never_news() -> None:
    detector = _detector(A, *CROWD)
    detector.probe(A, 1.0)
    _run_to(detector, 4.9)
    probe = detector.probes.get(A)
    assert probe is not None
    detector.ack(A, probe.nonce, 4.95)
    assert detector.state(A) == "alive"
    assert A not in detector.drain_testimony()


def test_a_refusal_is_told_at_once() -> None:
    detector = _detector(A, *CROWD)
    detector.unreachable(A, 1.0)
    detector.tick(1.5)
    assert A in detector.drain_testimony()


def test_the_word_of_another_makes_us_tell_what_we_found() -> None:
    detector = _detector(A, B, *CROWD)
    detector.probe(A, 1.0)
    _run_to(detector, 2.1)
    detector.drain_testimony()
    detector.accuse(A, B, 2.2, dead=False)
    assert A in detector.drain_testimony()


def test_hearsay_is_passed_on_in_a_crowd_and_looked_into_not_all_at_once() -> None:
    looks = []
    for seed in range(20):
        detector = _detector(A, B, *CROWD, seed=seed)
        detector.accuse(A, B, 0.1, dead=False)
        assert (detector.stance(A), detector.drain_testimony()) == ("suspect", [A])
        now = 0.1
        while A not in _pings(detector):
            now = detector.next_deadline()
            detector.tick(now)
        looks.append(now)
    assert 0.1 < min(looks) < 0.8
    assert 1.4 < max(looks) <= 0.1 + LOOK_WITHIN_S


def test_who_just_passed_our_probe_is_not_suspected_again_on_hearsay() -> None:
    detector = _detector(A, B, C, *CROWD)
    detector.accuse(A, B, 0.1, dead=False)
    now = 0.1
    while A not in (pings := _pings(detector)):
        now = detector.next_deadline()
        detector.tick(now)
    detector.ack(A, pings[A], now)
    assert detector.state(A) == "alive"
    detector.accuse(A, C, now + 1.0, dead=True)
    assert detector.state(A) == "alive"
    detector.accuse(A, C, now + SPARE_S, dead=True)
    assert detector.state(A) == "suspect"


def test_suspects_under_review_never_look_like_a_pause_of_our_own() -> None:
    detector = _detector(A, B, C, *CROWD)
    detector.probe(A, 1.0)
    now = 1.0
    while (now := detector.next_deadline()) < 8.0:
        detector.tick(now)
        for number, by in enumerate(CROWD[:20]):
            detector.accuse(A, by, now, dead=number > 10)
        assert detector.next_deadline() >= now
