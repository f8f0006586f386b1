"""Seeds of several answers to one question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.alternatives import MAX_ALTERNATIVES, alternative_seed

PINNED = (1159273494861415331, 6822400273289988861)

seeds = st.integers(0, 2**63 - 1)


@given(seeds)
def test_the_first_is_the_answer_that_comes_alone(seed: int) -> None:
    assert alternative_seed(seed, 0) == seed


@given(seeds, seeds)
def test_no_two_answers_share_a_seed(one: int, other: int) -> None:
    found = [alternative_seed(one, index) for index in range(MAX_ALTERNATIVES)]
    found += [alternative_seed(other, index) for index in range(MAX_ALTERNATIVES)]
    assert len(set(found)) == len(found) // (1 if one != other else 2)
    assert all(0 <= seed < 2**63 for seed in found)


def test_the_seeds_are_pinned() -> None:
    """An answer that somebody noted the seed of is to come again."""
    assert alternative_seed(7, 1) == PINNED[0]
    assert alternative_seed(2**63 - 1, 31) == PINNED[1]
