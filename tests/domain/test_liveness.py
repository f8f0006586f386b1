"""The failure detector: quick about the dead, patient with the slow, deaf to the forged."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from domain_samples import ordered

from diffuse_core.domain.health import MAX_HEALTH
from diffuse_core.domain.liveness import FailureDetector
from diffuse_core.domain.messages import Ack, Ping, PingRequest
from diffuse_core.domain.probes import MAX_PROBES, MAX_RELAYS, RELAY_S
from diffuse_core.domain.suspicion import SUSPICION_LEAST_S

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

ME, A, B, C, D = (ordered(number) for number in range(5))


def _detector(*nodes: NodeId, seed: int = 1) -> FailureDetector:
    detector = FailureDetector(ME, random.Random(seed))
    for node in nodes:
        detector.alive(node, 0.0)
    return detector


def _pings(detector: FailureDetector) -> dict[NodeId, int]:
    return {node: step.nonce for node, step in detector.drain() if isinstance(step, Ping)}


def _tick_to(detector: FailureDetector, start: float, end: float) -> None:
    """Tick whenever something is due, nobody answering."""
    now = start
    while (now := max(now, detector.next_deadline())) <= end:
        detector.tick(now)
        now += 1e-6


def test_nothing_is_due_without_nodes() -> None:
    detector = _detector()
    assert detector.next_deadline() == math.inf
    detector.tick(5.0)
    assert detector.drain() == []
    assert detector.sample_live(9) == []


def test_unknown_nodes_are_dead_and_silent() -> None:
    detector = _detector()
    detector.heard(A, 1.0)
    detector.probe(A, 1.0)
    detector.accuse(A, B, 1.0, dead=True)
    detector.unreachable(A, 1.0)
    detector.relay(B, 1, A, 1.0)
    detector.forget(A)
    assert (detector.state(A), detector.stance(A)) == ("dead", "dead")
    assert detector.heard_at(A) == -math.inf
    assert detector.rtt(A) is None
    assert detector.drain() == []


def test_every_node_is_probed_in_about_a_round() -> None:
    nodes = [ordered(number) for number in range(1, 11)]
    detector = _detector(*nodes)
    seen: set[NodeId] = set()
    for second in range(1, 21):
        detector.tick(float(second))
        for node, nonce in _pings(detector).items():
            seen.add(node)
            detector.ack(node, nonce, second + 0.01)
    assert seen == set(nodes)
    assert detector.drain_changes() == []


def test_round_trips_are_smoothed() -> None:
    detector = _detector(A)
    for now, answer, expected in [(1.0, 0.1, 0.1), (3.0, 0.2, 0.12), (5.0, 0.02, 0.07)]:
        detector.tick(now)
        detector.ack(A, _pings(detector)[A], now + answer)
        assert detector.rtt(A) == pytest.approx(expected)


def test_a_silent_node_is_asked_for_through_others_then_suspected_then_dead() -> None:
    detector = _detector(A)
    detector.tick(1.0)
    assert set(_pings(detector)) == {A}
    for node in (B, C, D):
        detector.alive(node, 1.0)
    detector.tick(1.5)
    steps = detector.drain()
    asked = [step.target for node, step in steps if isinstance(step, PingRequest)]
    assert {node for node, _ in steps} == {A, B, C, D}
    assert asked == [A, A, A]
    detector.tick(2.0)
    assert detector.drain_changes() == [(A, "suspect")]
    assert detector.drain_testimony() == [A]
    assert (detector.state(A), detector.stance(A)) == ("suspect", "suspect")
    for helper in (B, C):
        detector.accuse(A, helper, 2.5, dead=False)
    assert detector.drain_changes() == []


def test_a_suspect_alone_with_us_dies_after_the_least_patience() -> None:
    detector = _detector(A)
    _tick_to(detector, 0.0, 2.0 + SUSPICION_LEAST_S - 0.01)
    assert detector.state(A) == "suspect"
    _tick_to(detector, 2.0, 2.0 + SUSPICION_LEAST_S + 0.1)
    assert detector.state(A) == "dead"
    assert detector.drain_changes() == [(A, "suspect"), (A, "dead")]
    assert detector.drain_testimony() == [A, A]


@pytest.mark.parametrize("direct", [True, False])
def test_an_ack_clears_our_own_suspicion(direct: bool) -> None:
    detector = _detector(A, B)
    detector.probe(A, 0.0)
    detector.tick(0.5)
    detector.tick(1.0)
    assert detector.state(A) == "suspect"
    detector.probe(A, 1.2)
    nonce = _pings(detector)[A]
    detector.tick(1.2 + 0.5 * (1 + detector.health))
    detector.ack(A if direct else B, nonce, 2.3)
    assert detector.state(A) == "alive"
    assert detector.drain_changes() == [(A, "suspect"), (A, "alive")]
    assert (detector.rtt(A) is not None) is direct


def test_acks_that_answer_nothing_change_nothing() -> None:
    detector = _detector(A, B)
    detector.probe(A, 0.0)
    nonce = _pings(detector)[A]
    detector.ack(B, nonce, 0.1)  # was not asked to help
    detector.ack(A, nonce ^ 1, 0.1)
    assert detector.rtt(A) is None
    detector.tick(0.5)
    detector.tick(1.0)
    assert detector.state(A) == "suspect"


def test_a_forged_accusation_only_makes_us_probe() -> None:
    detector = _detector(A, B, C, D)
    for liar in (B, C, D):
        detector.accuse(A, liar, 1.0, dead=True)
    assert (detector.state(A), detector.stance(A)) == ("suspect", "alive")
    assert detector.drain_testimony() == []
    now = 1.0
    while now < 1.0 + SUSPICION_LEAST_S + 0.5:
        for node, nonce in _pings(detector).items():
            detector.ack(node, nonce, now + 0.01)
        now = max(now + 0.01, detector.next_deadline())
        detector.tick(now)
    assert detector.state(A) == "alive"


def test_a_refutation_ends_the_suspicion() -> None:
    detector = _detector(A, B)
    detector.accuse(A, B, 1.0, dead=False)
    detector.alive(A, 1.2)
    assert detector.drain_changes() == [(A, "suspect"), (A, "alive")]
    assert detector.heard_at(A) == 1.2


def test_refusals_in_a_row_are_death_within_two_seconds() -> None:
    detector = _detector(A)
    detector.unreachable(A, 10.0)
    now = 10.0
    while detector.state(A) != "dead" and now < 13.0:
        now = detector.next_deadline()
        detector.tick(now)
        for node in _pings(detector):
            detector.unreachable(node, now)
            detector.unreachable(node, now)
    assert now <= 12.0
    assert detector.drain_changes() == [(A, "suspect"), (A, "dead")]
    detector.unreachable(A, now)
    assert detector.drain() == []


def test_a_node_that_only_we_cannot_reach_stays_alive() -> None:
    detector = _detector(A, B)
    now = 0.0
    for _ in range(40):
        detector.tick(now)
        for node, step in detector.drain():
            if node == A:
                detector.unreachable(A, now)
            elif isinstance(step, Ping):
                detector.ack(B, step.nonce, now)
        for node, step in detector.drain():
            if isinstance(step, PingRequest):
                detector.ack(node, step.nonce, now + 0.01)
        now = max(now + 0.05, detector.next_deadline())
    assert detector.drain_changes() == []


def test_silence_between_refusals_starts_the_count_again() -> None:
    detector = _detector(A)
    detector.unreachable(A, 0.0)
    detector.tick(0.5)  # strike one
    detector.unreachable(A, 0.6)
    detector.tick(1.1)  # strike two
    _tick_to(detector, 1.1, 3.2)  # this probe is met with silence
    detector.unreachable(A, 3.3)
    detector.tick(3.8)
    assert detector.state(A) == "suspect"


def test_a_dead_node_that_speaks_is_probed_and_revived_by_a_record_only() -> None:
    detector = _detector(A)
    _tick_to(detector, 0.0, 8.0)
    assert detector.state(A) == "dead"
    detector.drain()
    detector.heard(A, 9.0)
    detector.heard(A, 9.1)
    nonce = _pings(detector)[A]
    detector.ack(A, nonce, 9.2)
    assert detector.state(A) == "dead"
    assert detector.lost == [A]
    detector.heard(A, 9.3)
    _tick_to(detector, 9.3, 12.0)
    assert detector.state(A) == "dead"
    assert detector.lost == [A, A]  # what it was heard over leads nowhere, either
    detector.alive(A, 12.0)
    assert detector.drain_changes()[-1] == (A, "alive")


def test_the_dead_are_not_probed() -> None:
    detector = _detector(A)
    _tick_to(detector, 0.0, 8.0)
    detector.drain()
    _tick_to(detector, 8.0, 20.0)
    assert detector.drain() == []


def test_time_in_which_we_were_paused_proves_nothing() -> None:
    detector = _detector(A, B)
    detector.tick(1.0)
    detector.probe(A, 1.0)
    detector.probe(B, 1.0)
    pings = _pings(detector)
    detector.tick(31.0)
    for node, nonce in pings.items():
        detector.ack(node, nonce, 31.2)
    assert detector.drain_changes() == []
    assert detector.health == 0


def test_a_suspicion_waits_while_we_are_paused() -> None:
    detector = _detector(A)
    _tick_to(detector, 0.0, 3.0)
    assert detector.state(A) == "suspect"
    detector.tick(63.0)
    assert detector.state(A) == "suspect"
    _tick_to(detector, 63.0, 70.0)
    assert detector.state(A) == "dead"


def test_local_health_stretches_our_timeouts_and_recovers() -> None:
    detector = _detector(A)
    for _ in range(20):
        detector.ail()
    assert detector.health == MAX_HEALTH
    detector.probe(A, 0.0)
    assert detector.next_deadline() == pytest.approx(min(1.0, 0.5 * (1 + MAX_HEALTH)))
    detector.tick(2.0)
    assert detector.state(A) == "alive"
    detector.ack(A, _pings(detector)[A], 2.0)
    assert detector.health < MAX_HEALTH


def test_helping_others_to_probe() -> None:
    detector = _detector(A, B)
    detector.relay(B, 77, A, 0.0)
    nonce = _pings(detector)[A]
    detector.ack(B, nonce, 0.1)
    assert detector.drain() == []
    detector.ack(A, nonce, 0.1)
    assert detector.drain() == [(B, Ack(77))]
    detector.ack(A, nonce, 0.2)
    assert detector.drain() == []


def test_relayed_probes_expire_and_are_bounded() -> None:
    detector = _detector(A, B)
    detector.relay(B, 1, A, 0.0)
    nonce = _pings(detector)[A]
    detector.tick(RELAY_S)
    detector.drain()
    detector.ack(A, nonce, 2.1)
    assert detector.drain() == []
    for number in range(MAX_RELAYS + 5):
        detector.relay(B, number, A, 3.0)
    nonces = [step.nonce for _, step in detector.drain()]
    for sent in nonces:
        detector.ack(A, sent, 3.1)
    answers = [step.nonce for _, step in detector.drain()]
    assert answers == list(range(5, MAX_RELAYS + 5))


def test_probes_under_way_are_bounded() -> None:
    nodes = [ordered(number) for number in range(1, MAX_PROBES + 10)]
    detector = _detector(*nodes)
    for node in nodes:
        detector.probe(node, 0.0)
    assert len(detector.drain()) == MAX_PROBES
    detector.unreachable(nodes[-1], 0.0)
    assert detector.drain() == []


def test_a_forgotten_node_is_gone_for_good() -> None:
    detector = _detector(A, B)
    detector.probe(A, 0.0)
    detector.forget(A)
    _tick_to(detector, 0.0, 3.0)
    assert detector.sample_live(9) == [B]
    assert detector.drain_changes()[0][0] == B


def test_a_refused_probe_asks_its_helpers_once() -> None:
    detector = _detector(A, B)
    detector.probe(A, 0.0)
    detector.tick(0.5)
    assert sum(isinstance(step, PingRequest) for _, step in detector.drain()) == 1
    detector.unreachable(A, 0.6)
    assert detector.drain() == []


def test_the_word_of_a_helper_ends_our_own_suspicion_but_not_that_of_others() -> None:
    detector = _detector(A, B, C)
    detector.probe(A, 0.0)
    detector.tick(0.5)
    detector.tick(1.0)
    detector.accuse(A, C, 1.05, dead=False)
    detector.drain()
    detector.probe(A, 1.2)
    nonce = _pings(detector)[A]
    detector.tick(1.2 + 0.5 * (1 + detector.health))
    assert any(node == B for node, _ in detector.drain())
    detector.ack(B, nonce, 2.3)
    assert (detector.state(A), detector.stance(A)) == ("suspect", "suspect")
    _tick_to(detector, 2.3, 60.0)
    assert detector.state(A) == "dead"


@pytest.mark.parametrize("at", [4.0, 6.5])
def test_a_sign_of_life_meanwhile_ends_a_suspicion_in_time(at: float) -> None:
    detector = _detector(A)
    _tick_to(detector, 0.0, at)
    assert detector.state(A) == "suspect"
    detector.heard(A, at)
    changes = detector.drain_changes()
    _tick_to(detector, at, 7.5)
    assert [*changes, *detector.drain_changes()][:2] == [(A, "suspect"), (A, "alive")]


def test_the_last_look_waits_when_our_probes_got_quicker_meanwhile() -> None:
    detector = _detector(A, B)
    detector.probe(A, 1.0)
    looks = []
    while (now := detector.next_deadline()) < 2.0 + SUSPICION_LEAST_S + 0.1:
        detector.tick(now)
        for node, step in detector.drain():
            if isinstance(step, Ping) and node == B:
                detector.ack(B, step.nonce, now)
            elif isinstance(step, Ping):
                looks.append(now)
    assert looks == [1.0, 1.5, 6.0, 6.5]
    assert detector.state(A) == "dead"
