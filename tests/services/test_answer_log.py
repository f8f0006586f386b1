"""What a last Stage sends is taken in order, and what cannot be is not."""

from __future__ import annotations

import pytest

from diffuse_core.domain.decoding import DecodingParams, TokenLogprobs
from diffuse_core.domain.messages import TokensDrawn
from diffuse_core.services.answer_log import AnswerLog

SESSION = b"s" * 16


def log(count: int = 10, logprobs: int | None = None) -> AnswerLog:
    return AnswerLog((1, 2, 3), DecodingParams(count, stop_ids=(9,), logprobs=logprobs), 50)


def drawn(position: int, *tokens: int, **more: object) -> TokensDrawn:
    return TokensDrawn(SESSION, position, tokens, **more)


def test_tokens_come_out_as_they_came_in() -> None:
    answer = log()
    first, second = drawn(3, 7), drawn(4, 8, 9, finish="stop")
    assert answer.take_in(first) is None
    assert answer.take_in(second) is None
    assert (answer.drawn, answer.rows, answer.budget) == ([7, 8, 9], 6, 13)
    assert answer.finished
    assert answer.unread
    assert [answer.take_out(), answer.take_out()] == [first, second]
    assert answer.read == 3
    assert not answer.unread


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (drawn(4, 7), "position"),
        (drawn(2, 7), "position"),
        (drawn(3, *range(11)), "more tokens"),
        (drawn(3, 50), "does not have"),
        (drawn(3, 7, logprobs=(TokenLogprobs(-1.0),)), "log-probabilities"),
        (drawn(3, 7, finish="stop"), "where it does not end"),
        (drawn(3, 7, finish="length"), "where it does not end"),
        (drawn(3, 7, finish="cancelled"), "where it does not end"),
        (drawn(3, *range(10, 20), finish="stop"), "where it does not end"),
        (drawn(3, 9), "behind its end"),
        (drawn(3, 9, finish="length"), "behind its end"),
        (drawn(3, 9, 7), "behind its end"),
        (drawn(3, 9, 9, finish="stop"), "behind its end"),
    ],
)
def test_what_cannot_be_is_refused(message: TokensDrawn, why: str) -> None:
    answer = log()
    assert why in (answer.take_in(message) or "")
    assert not answer.drawn
    assert not answer.unread


def test_nothing_comes_after_the_end() -> None:
    answer = log(1)
    assert answer.take_in(drawn(3, 7, finish="length")) is None
    assert "position" in (answer.take_in(drawn(4, 7)) or "")


def test_the_last_token_that_was_asked_for_is_the_end_though_the_stage_does_not_say_so() -> None:
    answer = log(2)
    assert answer.take_in(drawn(3, 7, 8)) is None
    assert answer.finished
    assert answer.take_out().finish == "length"


def test_log_probabilities_that_were_asked_for_must_come() -> None:
    answer = log(logprobs=0)
    assert "log-probabilities" in (answer.take_in(drawn(3, 7)) or "")
    assert answer.take_in(drawn(3, 7, logprobs=(TokenLogprobs(-1.0),))) is None


def test_what_is_told_again_is_taken_once() -> None:
    answer = log(4, logprobs=0)
    marks = tuple(TokenLogprobs(-1.0 * n) for n in range(1, 5))
    assert answer.take_in(drawn(3, 7, 8, logprobs=marks[:2])) is None
    assert answer.take_in(drawn(3, 7, 8, logprobs=marks[:2]), again=True) is None
    again = drawn(4, 8, 6, 10, logprobs=marks[1:], finish="length")
    assert answer.take_in(again, again=True) is None
    assert answer.drawn == [7, 8, 6, 10]
    answer.take_out()
    news = answer.take_out()
    assert (news.position, news.tokens, news.logprobs) == (5, (6, 10), marks[2:])
    assert answer.finished
    assert "position" in (answer.take_in(drawn(9, 1, logprobs=marks[:1]), again=True) or "")
