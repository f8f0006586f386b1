"""The lookout: Hosts that only pretend to be there delay healing, but not for long."""

from __future__ import annotations

from itertools import pairwise

import pytest
from domain_samples import ordered
from placement_samples import TEN, host

from diffuse_core.domain.lookout import MAX_KNOWN, Lookout, Pace
from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.slices import Slice

PACE = Pace()
SETTLE_S = 1.2
HELD = Slice(0, 5)
HONEST = 200
"""Those that can go; their ids come after those of the liars."""


def lookout(number: int = HONEST) -> Lookout:
    return Lookout(ordered(number), TEN, max_layers=None, target_replicas=2, pace=PACE)


def liars(count: int) -> list[HostSummary]:
    """Hosts of one layer that could hold everything, and never move."""
    return [host(number, 0, 1, capacity=2**50) for number in range(1, count + 1)]


def healed_after(count: int) -> float:
    """Seconds until one of three Hosts of the same layers claims the gap behind them."""
    honest = {number: lookout(number) for number in range(HONEST, HONEST + 3)}
    now = 0.0
    while now < 3600:
        claims = []
        for number, one in honest.items():
            others = [*liars(count), *(host(n, 0, 5) for n in honest if n != number)]
            finding = one.look(one.fresh(others, now), HELD, 800, now, SETTLE_S)
            if finding is not None and finding.gap:
                claims.append(number)
        if claims:
            # Whoever else claims as well: one stays, to vouch for the layers of the others.
            assert len(claims) < len(honest)
            return now
        now += PACE.look_s
    return now


def test_without_liars_healing_takes_a_few_looks() -> None:
    assert healed_after(0) == (PACE.patience - 1) * PACE.look_s


@pytest.mark.parametrize("count", [5, 24, 60, 190])
def test_any_number_of_liars_delays_healing_by_a_few_minutes_at_most(count: int) -> None:
    assert healed_after(count) < 150


def test_who_never_moves_is_passed_over_for_longer_each_time() -> None:
    watch = lookout()
    others = [host(1, 0, 5), host(2, 0, 5)]
    named_at = []
    before: set = set()
    now = 0.0
    while now < 5000:
        watch.look(others, HELD, 300, now, SETTLE_S)
        # White box: what is passed over is not seen from outside while others are named.
        passed = watch._passed_over(now)
        if ordered(1) in before and ordered(1) not in passed:
            named_at.append(now)
        before = passed
        now += PACE.look_s
    gaps = [later - earlier for earlier, later in pairwise(named_at)]
    assert gaps == sorted(gaps)
    assert len(named_at) in range(2, 5)


def test_a_liar_that_changes_its_slice_does_not_hold_a_range_for_ever() -> None:
    watch = lookout()
    now = 0.0
    while now < PACE.load_limit_s + 60:
        toggled = host(1, 5 + int(now // 60) % 2, 10, ("loading", "claiming")[int(now // 20) % 2])
        counted = watch.fresh([toggled], now)
        assert bool(counted) == (now < PACE.load_limit_s)
        now += 10.0
    assert watch.fresh([host(1, 5, 10)], now)
    assert watch.fresh([host(1, 5, 10, "loading")], now + 1)


def test_nor_one_that_is_away_now_and_then() -> None:
    watch = lookout()
    for second in range(0, int(PACE.load_limit_s), 10):
        watch.fresh([host(1, 5, 10, "loading")] if second % 30 else [], float(second))
    assert watch.fresh([host(1, 5, 10, "loading")], PACE.load_limit_s + 20) == []


def test_who_was_away_for_long_begins_anew() -> None:
    watch = lookout()
    watch.fresh([host(1, 5, 10, "loading")], 0.0)
    assert watch.fresh([host(1, 5, 10, "loading")], PACE.load_limit_s + 1)


def test_a_load_counts_from_the_end_of_the_claim_as_long_as_it_may_take() -> None:
    watch = lookout()
    assert watch.fresh([host(1, 5, 10, "claiming")], 0.0)
    assert watch.fresh([host(1, 5, 10, "loading")], 20.0)
    assert watch.fresh([host(1, 5, 10, "loading")], PACE.load_limit_s - 1)
    assert watch.fresh([host(1, 5, 10, "loading")], PACE.load_limit_s) == []


def test_what_is_remembered_of_others_is_bounded() -> None:
    watch = lookout()
    for number in range(MAX_KNOWN + 100):
        node = number.to_bytes(32, "big")
        watch.fresh([HostSummary(node, HELD, "loading", 1)], 0.0)
    assert len(watch._unready) == MAX_KNOWN
