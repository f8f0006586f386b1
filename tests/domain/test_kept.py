from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.kept import REGROUPED_ROWS, Kept, Piece
from diffuse_core.errors import Refused

PROMPT, WIDTH = 10, 3


def piece(position: int, rows: int, drafts: tuple[int, ...] = (), salt: int = 0) -> Piece:
    data = b"".join(bytes([position + at, salt, 7]) for at in range(rows))
    return Piece(position, rows, data, drafts)


def kept(*pieces: Piece, most: int = 32) -> Kept:
    made = Kept(PROMPT, WIDTH, most)
    for one in pieces:
        made.append(one)
    return made


PROMPTED = (piece(0, 4), piece(4, 4), piece(8, 2))


def test_a_prompt_goes_again_in_the_pieces_it_came_in() -> None:
    made = kept(*PROMPTED, piece(10, 1), piece(11, 1))
    assert [made.after(at) for at in (0, 4, 8)] == list(PROMPTED)
    # Rows after the prompt lie in chunks.
    assert (made.end, made.size) == (12, (10 + REGROUPED_ROWS) * WIDTH)
    with pytest.raises(Refused, match="middle of a piece"):
        made.after(5)


def test_single_rows_go_together_up_to_a_bound() -> None:
    made = kept(*PROMPTED, *(piece(at, 1) for at in range(10, 20)), most=4)
    assert made.after(10) == piece(10, 4)
    assert made.after(15) == piece(15, 4)
    assert made.after(18) == piece(18, 2)
    assert made.after(20) is None
    assert made.after(25) is None


def test_a_group_may_be_cut_anywhere() -> None:
    made = kept(*PROMPTED, piece(10, 6))
    assert made.after(13) == piece(13, 3)
    made.truncate(14)
    assert made.after(10) == piece(10, 4)
    assert made.end == 14


def test_guesses_go_with_their_row_and_are_none_once_known() -> None:
    guessed = piece(10, 4, (1, 2, 3))
    made = kept(*PROMPTED, guessed)
    assert made.after(10) == guessed
    # Whoever has the row already has made guesses of its own.
    assert made.after(11) is None
    made.append(piece(12, 2, (9,)))
    assert made.after(10) == piece(10, 2)
    assert made.after(12) == piece(12, 2, (9,))
    made.append(piece(14, 1))
    assert made.after(10) == piece(10, 5)


def test_a_settled_group_has_no_guesses() -> None:
    made = kept(*PROMPTED, piece(10, 4, (1, 2, 3)))
    made.truncate(11)
    assert made.after(10) == piece(10, 1)


@pytest.mark.parametrize(
    "wrong", [piece(11, 1), Piece(10, 2, b"abc"), Piece(10, 1, b""), Piece(10, 1, b"abcd")]
)
def test_what_does_not_fit_is_the_executors_fault(wrong: Piece) -> None:
    with pytest.raises(Refused) as refusal:
        kept(*PROMPTED).append(wrong)
    assert refusal.value.reason == "lost"


def test_a_prompt_is_not_cut() -> None:
    with pytest.raises(Refused):
        kept(*PROMPTED).truncate(5)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.booleans()), max_size=30),
    st.integers(1, 9),
    st.data(),
)
def test_whoever_lacks_rows_gets_the_latest_of_each(
    steps: list[tuple[int, int, bool]], most: int, data: st.DataObject
) -> None:
    made, truth, sure = kept(*PROMPTED, most=most), [(at, 0) for at in range(10)], 10
    for salt, (back, guesses, cut) in enumerate(steps, 1):
        at = data.draw(st.integers(sure, len(truth))) if back else len(truth)
        truth[at:] = [(at + row, salt) for row in range(1 + guesses)]
        made.append(piece(at, 1 + guesses, tuple(range(guesses)), salt))
        sure = at + 1
        if cut:
            made.truncate(sure)
            del truth[sure:]
    start = data.draw(st.one_of(st.sampled_from([0, 4, 8]), st.integers(10, sure)))
    got, at = [], start
    while (one := made.after(at)) is not None:
        assert one.position == at
        # Guesses are never regrouped, nor anything else beyond what a message takes.
        assert one.rows <= max(most, 4, 6)
        got += [(one.data[row * WIDTH], one.data[row * WIDTH + 1]) for row in range(one.rows)]
        at = one.end
    assert got == truth[start : start + len(got)]
    assert start + len(got) >= min(sure, len(truth))


def test_single_rows_take_what_their_numbers_take() -> None:
    """Of a narrow model an object for each of them would take more than they do."""
    width, rows = 128, 4000
    made = Kept(1, width)
    made.append(Piece(0, 1, bytes(width)))
    data = bytes(width)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for at in range(rows):
        made.append(Piece(1 + at, 1, data))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert made.end == 1 + rows
    assert taken <= 1.05 * rows * width


def test_rows_that_are_replaced_do_not_change_what_was_read() -> None:
    made = kept(*PROMPTED, piece(10, 3, (1, 2)))
    read = made.after(10)
    made.append(piece(11, 1, salt=9))
    assert read == piece(10, 3, (1, 2))
    assert made.row_from(11) == piece(11, 1, salt=9)


def test_rows_are_looked_at_from_anywhere() -> None:
    made = kept(*PROMPTED, *(piece(at, 1) for at in range(10, 80)))
    for at in (0, 3, 9, 10, 41, 42, 73, 79):
        row = made.row_from(at)
        assert bytes(row.data[:WIDTH]) == piece(at, 1).data
        assert len(row.data) == row.rows * WIDTH
    assert made.row_from(80) is None
    assert made.row_from(-1) is None
