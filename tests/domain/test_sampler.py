"""A Sampler along one answer: drafts, what was drawn before, ends, penalties, probabilities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.decoding import DecodingParams, Drawn, SamplingParams
from diffuse_core.domain.logprobs import sound_logprobs
from diffuse_core.domain.sampling import Sampler, logprobs
from diffuse_core.errors import Refused
from tests.domain.sampling_reference import adjusted, normal, some_logits

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCAB = 16
PROMPT = (1, 2, 3)
STOPS = (0, 5)

params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 7]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 2**63 - 1),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.9, -0.9]),
    logit_bias=st.sampled_from([(), ((4, 2.0), (99, 1.0))]),
)
decodings = st.builds(
    DecodingParams,
    max_tokens=st.just(64),
    sampling=params,
    stop_ids=st.sampled_from([(), STOPS]),
    min_tokens=st.sampled_from([0, 6]),
    logprobs=st.sampled_from([None, 3]),
)


def model(position: int, token: int) -> np.ndarray:
    """Logits after `token` before `position`: what a model would give, shape (vocab,)."""
    return some_logits(VOCAB, 1000 * position + token)[0]


def one_by_one(decoding: DecodingParams, count: int) -> list[Drawn]:
    sampler = Sampler(decoding, len(PROMPT), (), PROMPT)
    answer: list[Drawn] = []
    while len(answer) < count:
        last = answer[-1].token if answer else PROMPT[-1]
        at = len(PROMPT) + len(answer)
        answer.extend(sampler.choose(model(at, last)[None], at, ()))
        if answer[-1].token in decoding.stop_ids:
            break
    return answer


def tokens_of(answer: Sequence[Drawn]) -> list[int]:
    return [drawn.token for drawn in answer]


@given(decodings, st.data())
@settings(max_examples=60, deadline=None)
def test_drafts_change_nothing(decoding: DecodingParams, data: st.DataObject) -> None:
    expected = one_by_one(decoding, 14)
    right = tokens_of(expected)
    sampler = Sampler(decoding, len(PROMPT), (), PROMPT)
    answer: list[Drawn] = []
    while len(answer) < len(expected):
        begun, at = len(answer), len(PROMPT) + len(answer)
        # As many right guesses as are drawn, a wrong one, and some that nobody knows.
        good = data.draw(st.integers(0, len(expected) - begun - 1))
        rest = data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=3))
        drafts = [*right[begun : begun + good], *rest]
        before = [answer[-1].token if answer else PROMPT[-1], *drafts]
        logits = np.stack([model(at + row, token) for row, token in enumerate(before)])
        answer.extend(sampler.choose(logits, at, drafts))
    # The last pass may have gone on where the other was not asked to.
    assert answer[: len(expected)] == expected


@given(decodings, st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_another_sampler_that_is_told_the_past_goes_on_the_same(
    decoding: DecodingParams, lost: int
) -> None:
    expected = one_by_one(decoding, 13)
    told = tokens_of(expected)[: min(lost, len(expected) - 1)]
    sampler = Sampler(decoding, len(PROMPT), told, tuple(reversed(PROMPT * 2)))
    for drawn in expected[len(told) :]:
        at = len(PROMPT) + len(told)
        last = told[-1] if told else PROMPT[-1]
        assert sampler.choose(model(at, last)[None], at, ()) == (drawn,)
        told.append(drawn.token)


@given(decodings, st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_a_position_may_be_drawn_again(decoding: DecodingParams, back: int) -> None:
    expected = one_by_one(decoding, 13)
    answer = tokens_of(expected)
    sampler = Sampler(decoding, len(PROMPT), answer, PROMPT)
    index = min(back, len(expected) - 1)
    at = len(PROMPT) + index
    last = answer[index - 1] if index else PROMPT[-1]
    assert sampler.choose(model(at, last)[None], at, ()) == (expected[index],)


def test_what_is_not_known_of_the_past_is_not_guessed() -> None:
    for penalty in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        decoding = DecodingParams(9, SamplingParams(**{penalty: 1.5}))
        with pytest.raises(Refused, match="2 tokens of the answer so far, and 1"):
            Sampler(decoding, 3, (1,)).choose(some_logits(VOCAB, 1), 5, ())
    assert Sampler(DecodingParams(9), 3).choose(some_logits(VOCAB, 1), 5, ())


def plain(**given_params: Any) -> DecodingParams:
    return DecodingParams(64, SamplingParams(**given_params))


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stop_ids_are_barred_until_there_are_enough_tokens(
    min_tokens: int, temperature: float
) -> None:
    logits = np.full((1, VOCAB), -5.0, dtype=np.float32)
    logits[0, STOPS] = 30.0
    decoding = DecodingParams(
        64, SamplingParams(temperature=temperature), (*STOPS, 2**20), min_tokens=min_tokens
    )
    sampler = Sampler(decoding, 3)
    drawn = [sampler.choose(logits, 3 + at, ())[0].token in STOPS for at in range(5)]
    assert drawn == [False] * min_tokens + [True] * (5 - min_tokens)


def test_nothing_comes_after_a_stop_id() -> None:
    logits = np.zeros((4, VOCAB), dtype=np.float32)
    logits[:, 5] = 9.0
    sampler = Sampler(DecodingParams(64, stop_ids=STOPS), 3)
    assert tokens_of(sampler.choose(logits, 3, (5, 5, 5))) == [5]
    endless = Sampler(DecodingParams(64), 3)
    assert tokens_of(endless.choose(logits, 3, (5, 5, 5))) == [5] * 4
    assert tokens_of(endless.choose(logits[:2], 7, (5, 5, 5))) == [5] * 2


def test_where_every_token_is_barred_none_is_drawn() -> None:
    decoding = DecodingParams(9, stop_ids=tuple(range(VOCAB)), min_tokens=1)
    with pytest.raises(Refused, match="min_tokens"):
        Sampler(decoding, 3).choose(some_logits(VOCAB, 1), 3, ())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(bad: float, penalty: float) -> None:
    logits = some_logits(VOCAB, 1)
    logits[0, 7] = bad
    with pytest.raises(Refused, match="not finite"):
        Sampler(plain(presence_penalty=penalty), 3).choose(logits, 3, ())


@given(params, st.lists(st.integers(0, VOCAB - 1), max_size=8))
@settings(max_examples=100, deadline=None)
def test_greedy_takes_the_largest_after_bias_and_penalties(
    sampling: SamplingParams, past: list[int]
) -> None:
    greedy = DecodingParams(
        64,
        SamplingParams(
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            logit_bias=sampling.logit_bias,
        ),
    )
    logits = some_logits(VOCAB, sampling.seed % 1000)
    after = adjusted(logits[0].tolist(), greedy, past, PROMPT)
    (drawn,) = Sampler(greedy, 3, past, PROMPT).choose(logits, 3 + len(past), ())
    assert after[drawn.token] == pytest.approx(max(after.values()))


def test_biases_of_one_token_add_up() -> None:
    logits = np.zeros((1, VOCAB), dtype=np.float32)
    bias = ((3, 2.0), (4, 3.0), (3, 2.0))
    (drawn,) = Sampler(plain(logit_bias=bias), 3).choose(logits, 3, ())
    assert drawn.token == 3


def test_tokens_that_the_model_does_not_have_are_passed_over() -> None:
    decoding = plain(logit_bias=((VOCAB, 9.0),), repetition_penalty=2.0, presence_penalty=1.0)
    logits = some_logits(VOCAB, 1)
    best = int(logits.argmax())
    (drawn,) = Sampler(decoding, 3, (VOCAB, 2**24), (2**24, 77)).choose(logits, 5, ())
    assert drawn.token == best


def test_enormous_logits_stay_numbers() -> None:
    logits = np.array([[3e38, -3e38, 2e38, 0.0]], dtype=np.float32)
    decoding = DecodingParams(
        9,
        SamplingParams(
            temperature=0.01,
            repetition_penalty=0.01,
            presence_penalty=-100.0,
            frequency_penalty=-100.0,
            logit_bias=((0, 1000.0),),
        ),
        logprobs=4,
    )
    (drawn,) = Sampler(decoding, 2, (0, 1), (2,)).choose(logits, 4, ())
    assert drawn.token in (0, 2)
    assert drawn.logprobs is not None
    assert sound_logprobs((drawn.token,), (drawn.logprobs,), 4, 4)


def test_the_callers_logits_are_left_alone() -> None:
    logits = some_logits(VOCAB, 1)
    kept = logits.copy()
    logits.flags.writeable = False
    everything = DecodingParams(
        9,
        SamplingParams(0.5, 0.9, 5, 1, 0.1, 1.5, 1.0, 1.0, ((1, 1.0),)),
        stop_ids=(2,),
        min_tokens=5,
        logprobs=5,
    )
    for decoding in (everything, plain(temperature=1.0), plain(), DecodingParams(9, logprobs=2)):
        Sampler(decoding, 3, (4,), PROMPT).choose(logits, 4, ())
        assert np.array_equal(logits, kept)


@pytest.mark.parametrize("top", [0, 1, 20])
def test_log_probabilities_are_those_of_the_model_itself(top: int) -> None:
    logits = some_logits(50, 9)
    expected = normal(dict(enumerate(logits[0].tolist())))
    best = sorted(expected, key=lambda token: -expected[token])[:top]
    sampling = SamplingParams(
        temperature=3.0, top_k=3, repetition_penalty=2.0, logit_bias=((31, 1000.0),)
    )
    decoding = DecodingParams(9, sampling, logprobs=top)
    (drawn,) = Sampler(decoding, 3, (), best).choose(logits, 3, ())
    assert drawn.token == 31
    assert drawn.logprobs is not None
    assert math.exp(drawn.logprobs.drawn) == pytest.approx(expected[31])
    assert [token for token, _ in drawn.logprobs.top] == best
    for token, value in drawn.logprobs.top:
        assert math.exp(value) == pytest.approx(expected[token])
    assert sound_logprobs((31,), (drawn.logprobs,), top, 50)


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40),
    st.integers(0, 39),
    st.integers(0, 20),
)
def test_log_probabilities_that_are_sent_are_sound(
    values: list[float], token: int, top: int
) -> None:
    token %= len(values)
    entry = logprobs(np.array(values, dtype=np.float32), token, top)
    assert sound_logprobs((token,), (entry,), top, len(values))
