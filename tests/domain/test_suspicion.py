"""Suspicion: how long a suspect has, and when we look for ourselves."""

from __future__ import annotations

import random

import pytest
from domain_samples import ordered

from diffuse_core.domain.suspicion import (
    SUSPICION_LEAST_S,
    SUSPICION_S,
    SUSPICION_UNCONFIRMED,
    Suspicion,
)

ME, A, B, C = (ordered(number) for number in range(4))


def test_confirmations_shorten_the_suspicion() -> None:
    suspicion = Suspicion(ME, 100.0)
    suspicion.fail(100.0)
    times = [suspicion.deadline(9) - 100]
    for other in (A, B, C):
        assert suspicion.accuse(other)
        times.append(suspicion.deadline(9) - 100)
    most, least = SUSPICION_UNCONFIRMED * SUSPICION_LEAST_S, SUSPICION_LEAST_S
    assert times == [most, pytest.approx(most - (most - least) * 0.6309, abs=0.01), least, least]
    assert not suspicion.accuse(A)
    assert suspicion.deadline(999) - 100 == pytest.approx(3 * SUSPICION_S)


def test_accusers_are_bounded_but_our_own_probe_always_counts() -> None:
    suspicion = Suspicion(ME, 0.0)
    assert all(suspicion.accuse(ordered(number)) for number in range(1, 9))
    assert not suspicion.accuse(ordered(9))
    assert not suspicion.claim_dead(ordered(9))
    assert suspicion.fail(1.0)
    assert not suspicion.fail(2.0)
    assert suspicion.failed_at == 1.0


def test_death_claims_shorten_it_to_the_least_from_our_own_first_failure() -> None:
    suspicion = Suspicion(ME, 0.0)
    for other in (A, B, C):
        suspicion.accuse(other)
    suspicion.claim_dead(A)
    suspicion.fail(2.0)
    assert suspicion.deadline(999) == pytest.approx(3 * SUSPICION_S)
    suspicion.claim_dead(B)
    assert suspicion.deadline(999) == 2.0 + SUSPICION_LEAST_S


def test_those_that_look_late_leave_time_for_a_paused_node_and_for_two_probes() -> None:
    suspicion, rng = Suspicion(ME, 0.0), random.Random(1)
    for _ in range(100):
        suspicion.wait(0.0, 999, rng)
        assert 3 * SUSPICION_S - 6 <= suspicion.review_at(999, 1.0) <= 3 * SUSPICION_S - 4
    suspicion.wait(7.0, 10, rng)
    assert 7.0 <= suspicion.look_at <= 8.0
