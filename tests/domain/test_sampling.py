from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.sampling import sample
from diffuse_core.errors import Refused

LOGITS = np.array([0.5, 2.0, -1.0, 1.0, 0.0, 1.5], dtype=np.float32)
PINNED = [5, 5, 0, 0, 1, 5, 1, 1, 5, 5, 0, 0]


def exact(logits: np.ndarray, temperature: float) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) / temperature)
    return weights / weights.sum()


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    assert sample(LOGITS, SamplingParams(), 3) == 1
    assert sample(np.array([1, 3, 3], dtype=np.float32), SamplingParams(), 0) == 1


def test_a_draw_depends_on_seed_and_position_only() -> None:
    params = SamplingParams(temperature=1.0, seed=7)
    draws = [sample(LOGITS, params, position) for position in range(50)]
    assert draws == [sample(LOGITS, params, position) for position in range(50)]
    assert draws != [sample(LOGITS, SamplingParams(temperature=1.0, seed=8), p) for p in range(50)]
    assert len(set(draws)) > 2


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=1)
    draws = 4000
    counts = np.bincount(
        [sample(LOGITS, params, position) for position in range(draws)], minlength=len(LOGITS)
    )
    expected = exact(LOGITS, temperature) * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 20.5  # 99.9 % of the chi-square distribution with 5 degrees of freedom


def test_top_k_keeps_the_likeliest() -> None:
    params = SamplingParams(temperature=5.0, top_k=2, seed=3)
    assert {sample(LOGITS, params, position) for position in range(200)} == {1, 5}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    chances = np.sort(exact(LOGITS, 1.0))[::-1]
    params = SamplingParams(temperature=1.0, top_p=float(chances[0]) + 0.01, seed=3)
    assert {sample(LOGITS, params, position) for position in range(200)} == {1, 5}
    params = SamplingParams(temperature=1.0, top_p=0.01, seed=3)
    assert {sample(LOGITS, params, position) for position in range(50)} == {1}


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    st.floats(0.01, 10),
    st.floats(0.01, 1),
    st.integers(0, 50),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**20),
)
def test_a_drawn_token_is_among_the_likeliest(
    values: list[float], temperature: float, top_p: float, top_k: int, seed: int, position: int
) -> None:
    logits = np.array(values, dtype=np.float32)
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    token = sample(logits, params, position)
    assert 0 <= token < len(values)
    if top_k:
        assert (logits > logits[token]).sum() < top_k


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(Refused):
        sample(np.array([1.0, bad], dtype=np.float32), SamplingParams(), 0)


def reference(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Probabilities by the definition, one id at a time."""
    chances = exact(logits, params.temperature)
    ids = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    ids = ids[: params.top_k or len(ids)]
    mass = sum(chances[token] for token in ids)
    kept, before = [], 0.0
    for token in ids:
        if kept and before >= params.top_p * mass:
            break
        kept.append(token)
        before += chances[token]
    result = np.zeros(len(logits))
    result[kept] = chances[kept]
    return result / result.sum()


@pytest.mark.parametrize(
    ("top_k", "top_p"), [(0, 0.5), (0, 0.97), (40, 1.0), (40, 0.8), (0, 1.0), (5000, 0.9)]
)
def test_draws_from_a_large_vocabulary_follow_the_definition(top_k: int, top_p: float) -> None:
    """Large enough that the filters do not sort everything at once."""
    logits = np.random.default_rng(5).normal(size=5000).astype(np.float32) * 2
    params = SamplingParams(temperature=1.3, top_k=top_k, top_p=top_p, seed=12)
    chances = reference(logits, params)
    draws = np.array([sample(logits, params, position) for position in range(2000)])
    assert (chances[draws] > 0).all()
    # Groups of about equal probability, so that each expects enough draws.
    order = np.argsort(-chances)
    groups = np.searchsorted(chances[order].cumsum(), np.linspace(0, 1, 11)[1:-1])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    seen = np.bincount(np.searchsorted(groups, rank[draws], side="right"), minlength=10)
    expected = np.array([part.sum() for part in np.split(chances[order], groups)]) * len(draws)
    filled = expected > 0
    chi_square = float(((seen - expected)[filled] ** 2 / expected[filled]).sum())
    assert chi_square < 27.9  # 99.9 % with 9 degrees of freedom


def test_equal_logits_pass_the_filters_in_the_order_of_ids() -> None:
    logits = np.zeros(2000, dtype=np.float32)
    params = SamplingParams(temperature=1.0, top_k=3, seed=2)
    assert {sample(logits, params, position) for position in range(100)} == {0, 1, 2}
    params = SamplingParams(temperature=1.0, top_p=0.002, seed=2)
    assert {sample(logits, params, position) for position in range(100)} == {0, 1, 2, 3}


def test_a_tiny_temperature_is_greedy() -> None:
    params = SamplingParams(temperature=1e-310, seed=4)
    assert {sample(LOGITS, params, position) for position in range(20)} == {1}


def test_the_draws_are_pinned() -> None:
    """Nodes of different versions must draw the same, so these may never change."""
    params = SamplingParams(temperature=1.0, seed=2**63 - 1)
    assert [sample(LOGITS, params, position) for position in range(12)] == PINNED
