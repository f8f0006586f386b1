from __future__ import annotations

import pytest

from diffuse_core.domain.token_line import TokenLine, Tokens
from diffuse_core.errors import Refused


def line(known: int, *guesses: int) -> TokenLine:
    made = TokenLine()
    made.feed(Tokens(0, tuple(range(known))))
    made.guess(guesses)
    return made


def test_the_client_feeds_in_order() -> None:
    made = line(4)
    assert made.feed(Tokens(4, (7, 8))) == Tokens(4, (7, 8))
    for wrong in (3, 4, 7):
        with pytest.raises(Refused, match=f"position {wrong} came where 6 was next"):
            made.feed(Tokens(wrong, (7,)))


def test_what_was_drawn_needs_rows() -> None:
    made = line(4)
    assert made.ring(Tokens(4, (7,))) == (Tokens(4, (7,)), 0)
    assert made.known == 5


@pytest.mark.parametrize(
    ("drawn", "rows", "right"),
    [
        ((7,), (4, (7,)), 0),
        ((5, 7), (5, (7,)), 1),
        ((5, 6, 9), (6, (9,)), 2),
        ((5, 6, 7, 1), (7, (1,)), 3),
        ((8, 6, 7), (4, (8, 6, 7)), 0),
    ],
)
def test_right_guesses_need_no_rows_again(
    drawn: tuple[int, ...], rows: tuple[int, tuple[int, ...]], right: int
) -> None:
    made = line(4, 5, 6, 7)
    assert made.ring(Tokens(4, drawn)) == (Tokens(*rows), right)
    assert (made.known, made.guesses) == (4 + len(drawn), ())


def test_nothing_but_right_guesses_needs_no_rows_at_all() -> None:
    made = line(4, 5, 6, 7)
    assert made.ring(Tokens(4, (5, 6))) == (None, 2)
    assert (made.known, made.guesses) == (6, (7,))


def test_tokens_that_have_rows_are_ignored() -> None:
    made = line(6)
    assert made.ring(Tokens(4, (1, 2))) == (None, 0)
    assert made.ring(Tokens(4, (1, 2, 9))) == (Tokens(6, (9,)), 0)


def test_a_token_that_comes_early_waits_for_those_before_it() -> None:
    made = line(4)
    early = Tokens(6, (9,))
    assert made.ring(early) == (None, 0)
    assert made.ring(early) == (None, 0)
    assert made.early() is None
    made.feed(Tokens(4, (7,)))
    assert made.early() is None
    made.feed(Tokens(5, (8,)))
    assert made.early() == early
    assert made.early() is None
    assert made.ring(early) == (early, 0)


def test_only_one_waits() -> None:
    made = line(4)
    made.ring(Tokens(6, (9,)))
    with pytest.raises(Refused, match="before those"):
        made.ring(Tokens(7, (9,)))


def test_another_route_begins_with_what_is_held() -> None:
    made = line(4, 5, 6)
    made.ring(Tokens(7, (9,)))
    made.settle(3)
    assert (made.known, made.guesses) == (3, ())
    made.feed(Tokens(3, (3, 4, 5, 6)))
    assert made.early() is None
