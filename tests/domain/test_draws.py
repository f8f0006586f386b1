from __future__ import annotations

import pytest

from diffuse_core.domain import draws as draws_module
from diffuse_core.domain.decoding import DecodingParams, Drawn, TokenLogprobs
from diffuse_core.domain.draws import Draws
from diffuse_core.domain.messages import MAX_DRAFTS, TokensDrawn
from diffuse_core.errors import Refused
from tests.domain.session_samples import opening


def drawn(*tokens: int) -> list[Drawn]:
    return [Drawn(token) for token in tokens]


def made(**changes: object) -> Draws:
    return Draws(
        opening(**{"budget": 60, "decoding": DecodingParams(50, stop_ids=(2,)), **changes})
    )


def told(draws: Draws) -> list[TokensDrawn]:
    found = []
    while (message := draws.to_tell()) is not None:
        draws.told(message)
        found.append(message)
    return found


def test_a_stop_id_ends_the_generation_and_what_lies_beyond_is_dropped() -> None:
    draws = made()
    draws.add(drawn(7, 8))
    assert draws.finish is None
    draws.add(drawn(9, 2, 7))
    assert (draws.finish, draws.count) == ("stop", 4)
    draws.add(drawn(7))
    assert draws.count == 4
    assert draws.to_go_round() is None
    (message,) = told(draws)
    assert (message.position, message.tokens, message.finish) == (5, (7, 8, 9, 2), "stop")


@pytest.mark.parametrize(("most", "budget", "tokens"), [(3, 20, 3), (100, 9, 4)])
def test_length_ends_it_by_wish_or_by_budget(most: int, budget: int, tokens: int) -> None:
    draws = made(decoding=DecodingParams(most), budget=budget)
    draws.add(drawn(*[7] * (tokens - 1)))
    assert draws.finish is None
    draws.add(drawn(7, 7, 7))
    assert (draws.finish, draws.count) == ("length", tokens)


def test_tokens_go_round_once_and_wait_for_credit() -> None:
    draws = made(credits=2)
    assert draws.gone_round == 0
    draws.add(drawn(7))
    assert draws.to_go_round() == (5, (7,))
    assert draws.to_go_round() is None
    draws.add(drawn(8, 9, 10))
    assert draws.to_go_round() is None
    draws.grant(2)
    assert draws.to_go_round() is None
    assert draws.gone_round == 6
    draws.grant(1)
    assert draws.to_go_round() == (6, (8, 9, 10))
    assert draws.gone_round == 9


def test_what_another_stage_drew_before_is_counted_and_not_told() -> None:
    draws = made(drawn=3, decoding=DecodingParams(4))
    assert draws.next == 8
    assert draws.to_tell() is None
    draws.add(drawn(7))
    assert draws.finish == "length"
    assert [message.position for message in told(draws)] == [8]


def test_a_client_that_lost_tokens_is_told_again_and_feeds_them_itself() -> None:
    draws = made(credits=40)
    draws.add(drawn(7, 8))
    draws.to_go_round()
    draws.add(drawn(9))
    told(draws)
    draws.tell_again(1)
    assert [message.tokens for message in told(draws)] == [(8, 9)]
    assert draws.to_go_round() is None
    for wrong in (-1, 4):
        with pytest.raises(Refused, match="3"):
            draws.tell_again(wrong)


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws_module, "REMEMBERED", 4)
    draws = made()
    draws.add(drawn(*range(10, 20)))
    draws.tell_again(6)
    with pytest.raises(Refused):
        draws.tell_again(5)


def test_messages_hold_no_more_than_they_may() -> None:
    draws = made(decoding=DecodingParams(40))
    logprobs = TokenLogprobs(-0.5)
    draws.add([Drawn(7, logprobs)] * 40)
    first, second = told(draws)
    assert len(first.tokens) == len(first.logprobs) == MAX_DRAFTS + 1
    assert (len(second.tokens), second.position) == (8, 5 + MAX_DRAFTS + 1)
    assert (first.finish, second.finish) == (None, "length")


def test_tokens_that_nobody_took_are_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draws_module, "REMEMBERED", 4)
    draws = made(credits=1)
    for token in range(10, 15):
        draws.add(drawn(token))
    draws.grant(10)
    with pytest.raises(Refused, match="that nobody took"):
        draws.to_go_round()
    with pytest.raises(Refused, match="that nobody took"):
        draws.to_tell()
