from __future__ import annotations

from typing import Any

import pytest

from diffuse_core.domain.messages import MAX_ROWS, Hop, Reroute
from diffuse_core.domain.session import (
    PREFILL_ROWS,
    STRAY_PIECES,
    WINDOW_ROWS,
    Group,
    StageSession,
    common_name,
    whole_piece,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.wire import NAME_BYTES
from diffuse_core.errors import Refused
from tests.domain.session_samples import ROUTE, A, B, C, opening


def test_stages_know_their_neighbours() -> None:
    first, last = StageSession(opening()), StageSession(opening(index=1))
    assert first.is_first
    assert not first.is_last
    assert first.before is None
    assert first.after == ROUTE[1]
    assert last.is_last
    assert last.before == ROUTE[0]
    assert last.after is None
    assert (last.ring, last.tail) == ROUTE


def test_rows_come_in_order_and_within_the_budget() -> None:
    session = StageSession(opening())
    session.take_rows(0, 5)
    with pytest.raises(Refused, match="position 4"):
        session.take_rows(4, 1)
    with pytest.raises(Refused, match="budget"):
        session.take_rows(5, 16)
    session.take_rows(5, 15)
    assert session.received == 20


def test_rows_of_the_prompt_and_of_the_answer_do_not_come_together() -> None:
    session = StageSession(opening())
    session.take_rows(0, 3)
    with pytest.raises(Refused, match="together"):
        session.take_rows(3, 3)
    session.take_rows(3, 2)


def later_stage(**changes: Any) -> StageSession:
    """Not the first; its prompt is long."""
    route = (ROUTE[0], Hop(B, (), Slice(4, 5)), Hop(C, (), Slice(5, 6)))
    long = {"index": 1, "budget": 5 * WINDOW_ROWS, "prompt": 4 * WINDOW_ROWS, "route": route}
    return StageSession(opening(**{**long, **changes}), 8)


def fill(stage: StageSession, rows: int) -> None:
    """Rows of a prompt come, in pieces as they should be."""
    for position in range(stage.received, stage.received + rows, PREFILL_ROWS):
        stage.take_rows(position, PREFILL_ROWS)


def ran(stage: StageSession) -> int:
    """Let all that waits have its pass; what the Stage before is told."""
    while stage.pending:
        stage.count_ran()
    return stage.to_tell()


def test_only_so_many_rows_may_wait_at_a_stage() -> None:
    stage = later_stage()
    fill(stage, WINDOW_ROWS)
    with pytest.raises(Refused, match=f"more than {WINDOW_ROWS} rows wait"):
        stage.take_rows(WINDOW_ROWS, PREFILL_ROWS)
    stage.count_ran()
    stage.take_rows(WINDOW_ROWS, PREFILL_ROWS)


def test_a_prompt_waits_at_the_first_stage_however_long_it_is() -> None:
    first = StageSession(opening(budget=5 * WINDOW_ROWS, prompt=4 * WINDOW_ROWS))
    first.take_rows(0, 4 * WINDOW_ROWS)
    assert ran(first) == 0


def test_a_prompt_is_cut_in_the_same_places_however_it_comes() -> None:
    def cuts(*counts: int) -> list[tuple[int, int]]:
        first, at, found = StageSession(opening(budget=90, prompt=50), piece=16), 0, []
        for count in counts:
            found += [(group.position, group.rows) for group in first.take_rows(at, count)]
            at += count
        return found

    whole = [(0, 16), (16, 16), (32, 16), (48, 2)]
    assert cuts(50) == cuts(16, 34) == cuts(32, 16, 2) == whole
    assert cuts(20, 30) == [(0, 16), (16, 4), (20, 12), *whole[2:]]


def test_rows_after_the_prompt_are_cut_as_they_can_be_run_alone() -> None:
    first = StageSession(opening(budget=90), 3)
    first.take_rows(0, 5)
    groups = first.take_rows(5, 7)
    assert [(group.position, group.rows) for group in groups] == [(5, 3), (8, 3), (11, 1)]


def test_a_stage_tells_now_and_then_what_it_ran() -> None:
    stage, at, told = later_stage(prompt=1), 1, []
    stage.take_rows(0, 1)
    for rows in (PREFILL_ROWS - 2, 1, PREFILL_ROWS + 5, 1):
        stage.take_rows(at, rows)
        at += rows
        told.append(ran(stage))
    assert told == [0, PREFILL_ROWS, PREFILL_ROWS + 5, 0]


def test_rows_go_on_as_the_next_stage_runs_them() -> None:
    stage = StageSession(opening())
    chunks = WINDOW_ROWS // PREFILL_ROWS
    assert all(stage.may_send(PREFILL_ROWS) for _ in range(chunks))
    assert not stage.may_send(1)
    stage.count_ran_after(PREFILL_ROWS)
    assert not stage.may_send(PREFILL_ROWS + 1)
    assert stage.may_send(PREFILL_ROWS)
    assert not stage.may_send(1)


def test_nobody_runs_more_rows_than_were_sent() -> None:
    stage = StageSession(opening())
    stage.may_send(5)
    stage.count_ran_after(4)
    with pytest.raises(Refused, match="more rows than it was sent"):
        stage.count_ran_after(2)


def test_what_is_not_told_yet_never_stops_the_sender() -> None:
    """The receiver holds back less than a chunk; a chunk must still fit the window."""
    before, stage, position = StageSession(opening()), later_stage(prompt=1), 1
    assert before.may_send(1)
    stage.take_rows(0, 1)
    for rows in [PREFILL_ROWS - 2, *[PREFILL_ROWS] * 9, 1, 1, 1]:
        assert before.may_send(rows)
        stage.take_rows(position, rows)
        position += rows
        if told := ran(stage):
            before.count_ran_after(told)


# --- guesses --------------------------------------------------------------------------------


def guessing(**changes: Any) -> StageSession:
    """A Stage in the middle that has the prompt and a group of three guesses."""
    stage = later_stage(**{"prompt": 5, "budget": 40, **changes})
    stage.take_rows(0, 5)
    ran(stage)
    stage.take_rows(5, 4, (1, 2, 3))
    return stage


def test_rows_that_come_next_tell_which_guesses_were_right() -> None:
    for at in (6, 7, 8, 9):
        stage = guessing()
        assert stage.take_rows(at, 2, (9,)) == [Group(at, 2, (9,))]
        assert (stage.received, stage.known[0]) == (at + 2, at + 1)
    for at in (5, 10):
        with pytest.raises(Refused, match=f"position {at} came where 6 was next"):
            guessing().take_rows(at, 1)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ((0, 6, (1,)), "guessed rows"),
        ((5, 3, (1,)), "guessed rows"),
        ((5, 1, (1,)), "guessed rows"),
        ((5, 1, (1, 2)), "guessed rows"),
        ((5, 9, tuple(range(8))), "this stage runs 8"),
        ((5, 2, (1,)), ""),
    ],
)
def test_guesses_come_after_one_row_of_the_answer(
    group: tuple[int, int, tuple[int, ...]], said: str
) -> None:
    stage = later_stage(prompt=5 if group[0] else 7, budget=40)
    if group[0]:
        stage.take_rows(0, 5)
    if not said:
        stage.take_rows(*group)
        return
    with pytest.raises(Refused, match=said):
        stage.take_rows(*group)


def test_the_last_stage_takes_no_rows_of_tokens_that_it_did_not_draw() -> None:
    last = StageSession(opening(index=1, drawn=2), 8)
    last.take_rows(0, 5)
    last.take_rows(5, 2)
    with pytest.raises(Refused, match="not drawn"):
        last.take_rows(7, 1)
    with pytest.raises(Refused, match="not drawn"):
        last.take_rows(7, 3, (1, 2))


# --- other Routes ---------------------------------------------------------------------------


def test_what_is_held_are_rows_that_ran_and_are_known_right() -> None:
    stage = guessing()
    assert stage.settle() == 5  # The group had no pass.
    stage = guessing()
    ran(stage)
    assert stage.settle() == 6  # One row, and guesses.
    stage = guessing()
    ran(stage)
    stage.take_rows(8, 1)
    assert stage.settle() == 8  # What came next told that two were right, but had no pass.
    assert (stage.received, stage.ran, stage.sent, len(stage.pending)) == (8, 8, 0, 0)
    stage.take_rows(8, 1)


def test_the_last_stage_knows_by_what_it_drew() -> None:
    last = StageSession(opening(index=1), 8)
    last.take_rows(0, 5)
    ran(last)
    last.draws.count = 1
    last.take_rows(5, 4, (1, 2, 3))
    ran(last)
    last.draws.count = 4  # Two guesses were right.
    assert last.known == (8, 8, 0)
    assert last.settle() == 8


def reroute(*hops: Hop, index: int, drawn: int = 0) -> Reroute:
    return Reroute(b"s" * 16, 3, hops, index, drawn)


def test_another_route_leaves_the_part_and_counts_anew() -> None:
    stage = later_stage()
    fill(stage, WINDOW_ROWS)
    assert stage.may_send(WINDOW_ROWS)
    held = stage.settle()
    assert held == 0
    old = (ROUTE[0], Hop(B, (), Slice(4, 5)), Hop(C, (), Slice(5, 6)))
    new = (Hop(C, (), Slice(0, 4)), old[1], Hop(A, (), Slice(5, 6)))
    message = reroute(*new, index=1)
    stage.check_reroute(message, B)
    stage.reroute(message)
    assert (stage.epoch, stage.before, stage.after) == (3, new[0], new[2])
    assert (stage.ring, stage.tail) == (new[0], new[2])
    fill(stage, WINDOW_ROWS)
    assert stage.may_send(WINDOW_ROWS)
    with pytest.raises(Refused, match="more rows than it was sent"):
        stage.count_ran_after(WINDOW_ROWS + 1)


@pytest.mark.parametrize(
    ("message", "own"),
    [
        (reroute(*ROUTE, index=1), A),
        (reroute(*ROUTE, index=0), B),
        (reroute(Hop(A, (), Slice(0, 3)), Hop(B, (), Slice(3, 6)), index=0), A),
        (reroute(*ROUTE, index=0, drawn=16), A),
    ],
)
def test_a_route_that_changes_what_a_stage_runs_is_refused(message: Reroute, own: bytes) -> None:
    with pytest.raises(Refused):
        StageSession(opening()).check_reroute(message, own)


# --- pieces and names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "rows"), [(0, 1), (0, 255), (0, 257), (0, 512), (256, 255), (256, 43), (512, 87)]
)
def test_rows_of_a_prompt_come_from_other_stages_in_whole_pieces(position: int, rows: int) -> None:
    """Half of one would have to be completed by whoever takes that stage's place; it cannot."""
    stage = later_stage(prompt=600)
    fill(stage, position)
    with pytest.raises(Refused, match="pieces have 256 rows"):
        stage.take_rows(position, rows)


def test_the_last_piece_of_a_prompt_is_what_is_left() -> None:
    stage = later_stage(prompt=600)
    fill(stage, 512)
    stage.take_rows(512, 88)
    stage.take_rows(600, 1)


def test_a_prompt_does_not_come_in_a_crowd_of_pieces() -> None:
    """Each is kept by itself, for as long as the session lasts."""
    first = StageSession(opening(budget=900, prompt=600))
    for position in range(STRAY_PIECES + 3):
        first.take_rows(position, 1)
    with pytest.raises(Refused, match="more than 19 pieces"):
        first.take_rows(STRAY_PIECES + 3, 1)
    # What is forgotten before it was run may come anew.
    assert first.settle() == 0
    first.take_rows(0, 600)
    first.take_rows(600, 300)


def test_pieces_fit_into_larger_ones_and_into_what_clients_send() -> None:
    assert [whole_piece(most) for most in (0, 1, 2, 3, 127, 128, 255, 256)] == [
        1, 1, 2, 2, 64, 128, 128, 256,
    ]  # fmt: skip
    assert all(MAX_ROWS % whole_piece(most) == 0 for most in range(1, 257))


def test_the_sessions_of_two_clients_have_two_names_whatever_their_ids() -> None:
    names = {common_name(client, session) for client in (A, B) for session in (A[:16], B[:16])}
    assert len(names) == 4
    assert {len(name) for name in names} == {NAME_BYTES}
    assert StageSession(opening(), client=A).name == common_name(A, b"s" * 16)
