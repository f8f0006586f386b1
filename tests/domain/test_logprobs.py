"""What a last Stage may send as log-probabilities, and what it may not."""

from __future__ import annotations

import math

import pytest

from diffuse_core.domain.decoding import SamplingParams, TokenLogprobs, check_vocabulary
from diffuse_core.domain.logprobs import sound_logprobs
from diffuse_core.errors import UsageError

TOP = ((4, -0.5), (2, -1.5), (7, -3.0))
GOOD = TokenLogprobs(-1.5, TOP)


def sound(entry: TokenLogprobs, token: int = 2, asked: int | None = 3, vocab: int = 9) -> bool:
    return sound_logprobs((token,), (entry,), asked, vocab)


def test_what_was_asked_for_is_taken() -> None:
    assert sound(GOOD)
    assert sound(TokenLogprobs(-3.5, TOP), token=5)
    assert sound(TokenLogprobs(-9.0), asked=0)
    assert sound(TokenLogprobs(0.0, ((0, 0.0),)), token=0, asked=20, vocab=1)
    assert sound_logprobs((1, 2), (), None, 9)
    assert sound_logprobs((2, 2), (GOOD, GOOD), 3, 9)


@pytest.mark.parametrize(
    "entry",
    [
        TokenLogprobs(-1.5, TOP[:2]),
        TokenLogprobs(-1.5, (*TOP, (8, -4.0))),
        TokenLogprobs(-1.5, (TOP[1], TOP[0], TOP[2])),
        TokenLogprobs(-1.5, (TOP[0], TOP[1], (4, -3.0))),
        TokenLogprobs(-1.5, (TOP[0], TOP[1], (9, -3.0))),
        TokenLogprobs(-1.5, (TOP[0], TOP[1], (7, -math.inf))),
        TokenLogprobs(-1.5, (TOP[0], TOP[1], (7, math.nan))),
        TokenLogprobs(-1.5, ((4, 0.1), TOP[1], TOP[2])),
        TokenLogprobs(-0.5, ((4, -0.5), (2, -0.5), (7, -3.0))),
        TokenLogprobs(-1.4, TOP),
        TokenLogprobs(math.nan, TOP),
        TokenLogprobs(-math.inf, TOP),
        TokenLogprobs(math.inf, TOP),
    ],
)
def test_what_cannot_be_is_not_taken(entry: TokenLogprobs) -> None:
    assert not sound(entry)


def test_a_token_outside_the_likeliest_is_less_likely() -> None:
    assert not sound(TokenLogprobs(-2.9, TOP), token=5)
    assert not sound(TokenLogprobs(0.5), asked=0)


def test_there_is_one_for_each_token_and_none_unasked() -> None:
    assert not sound_logprobs((2,), (GOOD,), None, 9)
    assert not sound_logprobs((2, 2), (GOOD,), 3, 9)
    assert not sound_logprobs((2,), (), 3, 9)


def test_a_bias_on_a_token_that_there_is_not_is_told() -> None:
    check_vocabulary(SamplingParams(logit_bias=((8, 1.0),)), 9)
    with pytest.raises(UsageError, match="no token 9"):
        check_vocabulary(SamplingParams(logit_bias=((8, 1.0), (9, 1.0))), 9)
