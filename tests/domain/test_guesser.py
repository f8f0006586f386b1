from __future__ import annotations

from diffuse_core.domain.guesser import Guesser
from diffuse_core.domain.token_line import Tokens

TEXT = tuple(range(20, 60)) + tuple(range(20, 40))


def fed(most: int = 8, known: int = 0) -> Guesser:
    guesser = Guesser()
    guesser.allow(most, known)
    guesser.fed(Tokens(0, TEXT[:30]), 60)
    guesser.fed(Tokens(30, TEXT[30:]), 60)
    return guesser


def guesses(guesser: Guesser, most: int = 8) -> list[tuple[int, ...]]:
    """What it guesses while the text that it knows goes on."""
    found, at = [], len(TEXT)
    for number in range(12):
        token = Tokens(at, (40 + number,))
        found.append(guesser.after(token, 0, 0, most, float(number)))
        at += 1
    return found


def test_what_stood_before_is_guessed_again() -> None:
    found = [guess for guess in guesses(fed()) if guess]
    assert found
    assert all(guess == tuple(range(guess[0], guess[0] + len(guess))) for guess in found)


def test_who_may_not_guess_does_not() -> None:
    for guesser in (Guesser(), fed(most=0), fed(known=1)):
        assert not any(guesses(guesser))
    assert not any(guesses(fed(), most=0))


def test_nothing_is_learned_twice() -> None:
    guesser = fed()
    guesser.settle()
    guesser.fed(Tokens(50, TEXT[50:]), 60)
    assert len(guesser._drafter) == len(TEXT)
    guesser.after(Tokens(len(TEXT) - 2, (*TEXT[-2:], 40)), 0, 0, 8, 0.0)
    assert len(guesser._drafter) == len(TEXT) + 1


def test_a_pass_that_waited_for_something_else_is_not_measured() -> None:
    guesser, told = fed(), []
    guesser._drafter.settled = lambda *figures: told.append(figures)
    guesser.after(Tokens(60, (40,)), 0, 0, 8, 1.0)
    guesser.after(Tokens(61, (41,)), 2, 1, 8, 1.5)
    guesser.settle()
    guesser.after(Tokens(62, (42,)), 2, 1, 8, 9.5)
    guesser.after(Tokens(63, (43,)), 0, 0, 8, 9.75)
    assert told == [(2, 1, 0.5), (0, 0, 0.25)]
