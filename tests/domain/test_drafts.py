"""Guesses come from where the last tokens stood before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.drafts import LONGEST, PLACES, Drafter, History

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS = st.lists(st.integers(0, 4), max_size=60)


def written(tokens: Sequence[int]) -> History:
    history = History()
    for token in tokens:
        history.append(token)
    return history


def looked_up_slowly(tokens: Sequence[int]) -> tuple[int, int]:
    """What History.find says, by comparing with every place."""
    end, best = len(tokens), (0, 0)
    places = [at for at in range(2, end) if tokens[at - 2 : at] == tokens[end - 2 : end]]
    for place in reversed(places[-PLACES:]):
        same = 0
        while same < min(LONGEST, place) and tokens[place - 1 - same] == tokens[end - 1 - same]:
            same += 1
        if same > best[1]:
            best = place, same
    return best


@given(TOKENS)
def test_the_longest_agreement_wins_and_the_latest_of_equals(tokens: list[int]) -> None:
    assert written(tokens).find() == looked_up_slowly(tokens)


def test_large_token_ids_are_told_apart() -> None:
    high = 2**24
    history = written([high, high - 1, 7, high - 1, high, 8, high, high - 1])
    assert history.find() == (2, 2)
    assert history.at(2) == 7
    assert len(history) == 8


def test_what_runs_into_the_end_goes_round() -> None:
    history = written([9, 1, 2, 3, 1, 2])
    assert history.after(history.find()[0], 7) == (3, 1, 2, 3, 1, 2, 3)
    assert history.after(6, 3) == ()


def told(drafter: Drafter, tokens: Sequence[int], seconds: float = 0.02) -> None:
    for token in tokens:
        drafter.settled(0, 0, seconds)
        drafter.extend([token], drawn=True)


def test_a_copy_of_the_prompt_is_guessed() -> None:
    drafter = Drafter()
    drafter.extend(range(100, 140))
    told(drafter, [7, 7, 100, 101, 102])
    guessed = drafter.propose(31)
    assert guessed
    assert guessed == tuple(range(103, 103 + len(guessed)))
    assert drafter.propose(31) == guessed
    assert len(drafter.propose(1)) == 1
    assert len(drafter) == 45


def test_the_window_grows_while_guesses_are_right() -> None:
    drafter = Drafter()
    text = list(range(100, 300))
    drafter.extend(text)
    told(drafter, text[:4])
    at, sizes = 4, []
    while at < 150:
        guessed = drafter.propose(31)
        sizes.append(len(guessed))
        assert list(guessed) == text[at : at + len(guessed)]
        drafter.settled(len(guessed), len(guessed), 0.02 + 0.0005 * len(guessed))
        drafter.extend(text[at : at + len(guessed) + 1], drawn=True)
        at += len(guessed) + 1
    assert sizes == sorted(sizes)
    assert sizes[-1] == 31


def test_no_guess_without_history_nor_before_plain_passes_were_timed() -> None:
    drafter = Drafter()
    assert drafter.propose(31) == ()
    drafter.extend([1, 2, 3, 1, 2])
    assert drafter.propose(31) == ()
    told(drafter, [3, 1, 2])
    assert drafter.propose(31) != ()
    assert drafter.propose(0) == ()


def test_a_place_that_proved_wrong_is_left() -> None:
    drafter = Drafter()
    drafter.extend([1, 2, 3, 4, 5, 6, 50, 3, 4, 9, 60])
    told(drafter, [1, 2])
    assert drafter.propose(1) == (3,)
    told(drafter, [3, 4, 9])
    # Not what followed 1 2 3 4 the first time.
    assert drafter.propose(1) in ((), (60,))


@given(TOKENS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.floats())))
def test_no_figures_break_it(tokens: list[int], figures: list[tuple[int, int, float]]) -> None:
    drafter, twin = Drafter(), Drafter()
    for each in (drafter, twin):
        each.extend(tokens)
        for proposed, accepted, seconds in figures:
            each.settled(proposed, accepted, seconds)
        each.extend(tokens, drawn=True)
    guessed = drafter.propose(5)
    assert len(guessed) <= 5
    assert guessed == twin.propose(5)
