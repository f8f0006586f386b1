"""What a last Stage would have drawn, where another drew."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.examiner import Examiner
from diffuse_core.domain.sampling import UNREACHABLE, Sampler, sample
from diffuse_core.domain.session import Group
from diffuse_core.errors import Refused

VOCAB, PROMPT, COUNT = 50, 5, 40
SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=3),
    SamplingParams(temperature=1.5, top_k=7, seed=4),
    SamplingParams(temperature=1.0, top_p=0.7, min_p=0.02, seed=5),
    SamplingParams(temperature=0.9, repetition_penalty=1.3, frequency_penalty=0.4, seed=6),
    SamplingParams(logit_bias=((3, 2.0), (4, -100.0))),
]


def logits(rows: int, salt: int = 0) -> np.ndarray:
    table = 2 * np.random.default_rng(salt).standard_normal((rows, VOCAB))
    return table.astype(np.float32)


def told(examiner: Examiner) -> list[tuple[float, float]]:
    return list(struct.iter_unpack("<2f", examiner.tell(0, COUNT)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_was_drawn_is_within_reach_and_what_was_not_is_not(sampling: SamplingParams) -> None:
    table, decoding = logits(COUNT), DecodingParams(COUNT, sampling, stop_ids=(9,), min_tokens=4)
    sampler = Sampler(decoding, PROMPT, (), (1, 2))
    drawn = [sampler.choose(table[at : at + 1], PROMPT + at, ())[0].token for at in range(COUNT)]
    honest = Examiner(decoding, PROMPT, drawn, (1, 2))
    honest.choose(table[:1], PROMPT, ())
    honest.choose(table[1:], PROMPT + 1, honest.between(Group(PROMPT, COUNT - 1)))
    assert [margin for _, margin in told(honest)] == [0.0] * COUNT
    assert [token for token, _ in told(honest)] == drawn

    changed = list(drawn)
    changed[20] = (drawn[20] + 1) % VOCAB
    liar = Examiner(decoding, PROMPT, changed, (1, 2))
    liar.choose(table, PROMPT, ())
    margins = [margin for _, margin in told(liar)]
    assert margins[:20] == [0.0] * 20
    assert margins[20] > 0
    assert told(liar)[20][0] == drawn[20]


def test_the_margin_at_temperature_0_is_the_distance_of_logits() -> None:
    table = logits(1)
    best, second = np.argsort(-table[0])[:2]
    _, margin = Sampler(DecodingParams(1), 0).examine(table[0], 0, int(second))
    assert margin == pytest.approx(float(table[0][best] - table[0][second]))


def test_a_token_that_the_model_lacks_is_out_of_reach() -> None:
    for sampling in (SamplingParams(), SamplingParams(temperature=1.0)):
        _, margin = Sampler(DecodingParams(1, sampling), 0).examine(logits(1)[0], 0, VOCAB)
        assert margin == UNREACHABLE


def test_a_barred_token_is_out_of_reach() -> None:
    decoding = DecodingParams(9, stop_ids=(9,), min_tokens=3)
    _, margin = Sampler(decoding, 0).examine(logits(1)[0], 0, 9)
    assert margin == UNREACHABLE


def test_a_token_at_the_edge_of_a_filter_is_nearly_within_reach() -> None:
    table = np.array([[3.0, 2.0, 1.0, 0.999, -5.0]], np.float32)
    sampler = Sampler(DecodingParams(1, SamplingParams(temperature=1.0, top_k=3)), 0)
    _, near = sampler.examine(table[0], 0, 3)
    _, far = sampler.examine(table[0], 0, 4)
    assert near == pytest.approx(0.001, abs=1e-4)
    assert far == pytest.approx(6.0)


def test_noise_in_the_logits_moves_tokens_only_within_reach() -> None:
    sampling = SamplingParams(temperature=1.0, top_p=0.95, seed=8)
    decoding, table = DecodingParams(COUNT, sampling), logits(COUNT)
    noisy = table + np.random.default_rng(1).normal(0, 0.01, table.shape).astype(np.float32)
    sampler = Sampler(decoding, PROMPT)
    drawn = [sampler.choose(noisy[at : at + 1], PROMPT + at, ())[0].token for at in range(COUNT)]
    examiner = Examiner(decoding, PROMPT, drawn, ())
    examiner.choose(table, PROMPT, ())
    assert max(margin for _, margin in told(examiner)) < 0.1


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize(
    "sampling", [{"top_k": 3}, {"top_p": 0.95}, {"top_k": 3, "min_p": 0.01}, {"min_p": 0.01}]
)
def test_tokens_that_are_as_likely_may_change_places(
    sampling: dict[str, float], temperature: float
) -> None:
    # Where they are sorted, the first half of the random numbers means another one for each.
    one = np.array([2.05, 2.0, -1.0, -9.0], np.float32)
    other = np.array([2.0, 2.05, -1.0, -9.0], np.float32)
    for seed in range(20):
        params = SamplingParams(temperature=temperature, seed=seed, **sampling)
        decoding = DecodingParams(1, params)
        token = sample(other, params, 0)
        assert Sampler(decoding, 0).examine(one, 0, token, 0.5)[1] < 0.2


def test_whether_there_are_more_than_top_k_may_be_otherwise_elsewhere() -> None:
    # Five of these pass min-p here and six there: only there are they sorted.
    one = np.array([1.0, 1.4, 1.2, 3.0, 2.0, 0.695, -9.0], np.float32)
    other = one.copy()
    other[5] = 0.699
    for seed in range(100):
        params = SamplingParams(temperature=1.0, top_k=5, min_p=0.1, seed=seed)
        for here, there in ((one, other), (other, one)):
            token = sample(there, params, 0)
            assert Sampler(DecodingParams(1, params), 0).examine(here, 0, token)[1] < 0.1


def test_what_only_happens_to_be_sorted_stays_in_order() -> None:
    table = np.array([2.0, 1.9, -9.0], np.float32)
    margins = []
    for seed in range(40):
        params = SamplingParams(temperature=1.0, min_p=0.1, seed=seed)
        margins.append(Sampler(DecodingParams(1, params), 0).examine(table, 0, 1, 0.5)[1])
    assert max(margins) > 2


@pytest.mark.parametrize("sampling", [{"top_k": 3}, {"top_p": 0.99}])
def test_a_token_that_is_far_less_likely_stays_behind(sampling: dict[str, float]) -> None:
    table = np.array([3.0, 1.0, 0.9, -9.0], np.float32)
    margins = []
    for seed in range(20):
        params = SamplingParams(temperature=1.0, seed=seed, **sampling)
        margins.append(Sampler(DecodingParams(1, params), 0).examine(table, 0, 1, 0.5)[1])
    # Its share begins at 0.79 of all: of that many of the numbers it is out of reach.
    assert sum(margin > 0 for margin in margins) > 10
    assert max(margins) > 3


def test_rows_beyond_the_answer_are_not_looked_at_and_none_is_said_to_be_void() -> None:
    examiner = Examiner(DecodingParams(9), PROMPT, (1, 2), ())
    drawn = examiner.choose(logits(4), PROMPT, (1, 2, 3))
    assert len(drawn) == 4
    assert len(told(examiner)) == 2


def test_of_a_prompt_only_the_last_row_matters() -> None:
    assert Examiner(DecodingParams(9), PROMPT, (1, 2), ()).between(Group(0, PROMPT)) == ()


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(Refused):
        Examiner(DecodingParams(9), PROMPT, (1, 2), ()).choose(
            np.full((1, VOCAB), math.nan, np.float32), PROMPT, ()
        )
