"""Suspicion: how long a suspect has, and when we look for ourselves."""

from __future__ import annotations

import pytest
from domain_samples import ordered

from diffuse_core.domain.suspicion import (
    QUIET_FROM,
    QUIET_S,
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
    suspicion.claim_dead(ordered(9))
    suspicion.fail(1.0)
    suspicion.fail(2.0)
    assert suspicion.failed_at == 1.0
    assert suspicion.deadline(5) == 1.0 + SUSPICION_LEAST_S


def test_death_claims_shorten_it_to_the_least_from_our_own_first_failure() -> None:
    suspicion = Suspicion(ME, 0.0)
    for other in (A, B, C):
        suspicion.accuse(other)
    suspicion.claim_dead(A)
    suspicion.fail(2.0)
    assert suspicion.deadline(999) == pytest.approx(3 * SUSPICION_S)
    suspicion.claim_dead(B)
    assert suspicion.deadline(999) == 2.0 + SUSPICION_LEAST_S


def test_what_we_found_alone_is_ripe_after_a_while_in_a_large_network_only() -> None:
    suspicion = Suspicion(ME, 0.0)
    assert not suspicion.ripe(99.0, 999)
    suspicion.fail(1.0)
    assert suspicion.ripe(1.0, QUIET_FROM - 1)
    assert not suspicion.ripe(1.0 + QUIET_S - 0.1, QUIET_FROM)
    assert suspicion.ripe(1.0 + QUIET_S, QUIET_FROM)
    assert suspicion.ripe(1.0, QUIET_FROM, refused=True)
    suspicion.accuse(A)
    assert suspicion.ripe(1.0, QUIET_FROM)
    suspicion.told = True
    assert not suspicion.ripe(99.0, QUIET_FROM)
