"""Allowances: so much at once, so much per second, for each node by itself."""

from __future__ import annotations

from domain_samples import ordered
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.allowances import Allowance, Allowances


def test_a_burst_and_then_a_rate() -> None:
    allowance = Allowance(3, 0.5)
    assert [allowance.spend(1, 10.0) for _ in range(4)] == [True, True, True, False]
    assert allowance.ready_at(1, 10.0) == 12.0
    assert not allowance.spend(1, 11.9)
    assert allowance.spend(1, 12.0)
    assert allowance.ready_at(1, 100.0) == 100.0
    assert [allowance.spend(1, 100.0) for _ in range(4)] == [True, True, True, False]


def test_time_that_runs_backwards_gives_nothing() -> None:
    allowance = Allowance(1, 1.0)
    assert allowance.spend(1, 10.0)
    assert not allowance.spend(1, 5.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), max_size=40))
def test_what_is_ready_can_be_spent_and_never_more_than_burst_and_rate(
    steps: list[tuple[float, float]],
) -> None:
    allowance, now, spent = Allowance(5, 2.0), 0.0, 0.0
    for pause, amount in steps:
        now += pause
        if allowance.spend(amount, now):
            spent += amount
        elif amount <= 5:
            ready = allowance.ready_at(amount, now)
            assert ready > now
            now = ready
            assert allowance.spend(amount, now)
            spent += amount
        assert spent <= 5 + 2.0 * now + 1e-3


def test_each_node_has_its_own_and_only_so_many_are_kept() -> None:
    allowances = Allowances(1, 0.001, most=2)
    assert allowances.spend(ordered(1), 1, 0.0)
    assert not allowances.spend(ordered(1), 1, 0.0)
    assert allowances.spend(ordered(2), 1, 0.0)
    assert not allowances.spend(ordered(1), 1, 0.0)
    assert allowances.spend(ordered(3), 1, 0.0)
    assert len(allowances) == 2
    assert not allowances.spend(ordered(1), 1, 0.0), "who was quiet longest is forgotten first"
    assert allowances.spend(ordered(2), 1, 0.0)


def test_it_is_told_when_a_node_may_go_on() -> None:
    allowances = Allowances(burst=4, per_s=2)
    assert allowances.ready_at("one", 4, 10.0) == 10.0
    assert allowances.spend("one", 4, 10.0)
    assert allowances.ready_at("one", 3, 10.0) == 11.5
    assert allowances.ready_at("another", 3, 10.0) == 10.0
    assert not allowances.spend("one", 3, 11.4)
    assert allowances.spend("one", 3, 11.5)
