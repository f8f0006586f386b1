"""What of a conversation travels with a question."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from diffuse_core.domain.context import (
    MAX_CHARS,
    MAX_MESSAGES,
    TOKEN_CHARS,
    context,
    room,
    token_chars,
)
from diffuse_core.domain.view import ChatMessage


class Said(NamedTuple):
    question: str
    answer: str
    state: str = "done"


def test_all_turns_travel_but_for_those_without_an_answer() -> None:
    sent = context([Said("a", "b"), Said("c", ""), Said("d", "e", "failed")], "f", "s")
    assert [message.content for message in sent.messages] == ["s", "a", "b", "f"]
    assert sent.left_out == 0


def test_the_oldest_stay_behind() -> None:
    assert context([Said("aa", "bb"), Said("cc", "dd")], "ee", room=6).left_out == 1
    many = context([Said("a", "b")] * 500, "e")
    assert (len(many.messages), many.left_out) == (MAX_MESSAGES, 500 - MAX_MESSAGES // 2)


def test_how_much_room_there_is() -> None:
    assert room(2_048, 48) == 2_000 * TOKEN_CHARS
    assert room(2_048, 9_999, 2.0) == 2_048
    assert room(10**9, 1) == MAX_CHARS


def test_a_prompt_shows_how_long_its_tokens_are() -> None:
    sent = (ChatMessage("user", "x" * 2_000),)
    assert token_chars(sent, 1_000) == pytest.approx(1.8)
    assert (token_chars(sent, 1), token_chars(sent, 10**6)) == (10.0, 0.1)
    assert token_chars(sent, 0) is None
    assert token_chars((ChatMessage("user", "x"),), 9) is None
