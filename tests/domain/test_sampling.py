from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.sampling import sample
from diffuse_core.errors import Refused

LOGITS = np.array([0.5, 2.0, -1.0, 1.0, 0.0, 1.5], dtype=np.float32)


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
