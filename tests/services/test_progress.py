"""Rows end at the one who holds them; nobody is given up while anybody gets on."""

from __future__ import annotations

import pytest

from diffuse_core.services.progress import (
    STUCK_PER_ROW_S,
    STUCK_S,
    TOKEN_PER_ROW_S,
    TOKEN_S,
    Counts,
    Progress,
    holder,
)

DONE = Counts(10, 10, 10)


@pytest.mark.parametrize(
    ("counts", "at"),
    [
        # Nothing reached the first.
        ([Counts(), Counts(), Counts()], 0),
        # It has rows and does not run them; or ran them and does not send.
        ([Counts(10, 4, 4), Counts(4, 4, 4), Counts(4, 4, 4)], 0),
        ([Counts(10, 10, 4), Counts(4, 4, 4), Counts(4, 4, 4)], 0),
        # It waits for rows that were sent to it.
        ([DONE, Counts(4, 4, 4), Counts(4, 4, 4)], 1),
        ([DONE, DONE, Counts(4, 4, 4)], 2),
        # The window to one that is slow is full: that is not the fault of who waits for room.
        ([Counts(10, 10, 8), Counts(8, 3, 3), Counts(3, 3, 3)], 1),
        # All had all of it, and no token came.
        ([DONE, DONE, DONE], 2),
        ([DONE], 0),
        # The last one waits rightly, as does the one before.
        ([Counts(10, 7, 7), Counts(7, 7, 7), Counts(7, 7, 0)], 0),
        # Who tells of more than there is gains nothing by it.
        ([DONE, DONE, Counts(99, 99, 99)], 2),
    ],
)
def test_rows_end_at_one_stage(counts: list[Counts], at: int) -> None:
    assert holder(counts, 10) == at


def test_claims_that_cannot_be_still_name_a_stage() -> None:
    assert holder([Counts(10, 10, 10), Counts(20, 20, 20), Counts(20, 9, 9)], 10) in (0, 1, 2)
    # The last one says that it waits, and those before it that they did all: one of them lies.
    assert holder([Counts(12, 12, 12), Counts(12, 12, 12), Counts(12, 9, 9)], 12) == 2


def test_who_gets_on_is_not_stuck() -> None:
    progress = Progress()
    assert not progress.is_stuck([Counts()], 10, 1e9)
    progress.begin(0.0)
    limit = STUCK_S + STUCK_PER_ROW_S * 10
    assert not progress.is_stuck([Counts(10, 0, 0)], 10, 1.0)
    assert not progress.is_stuck([Counts(10, 0, 0)], 10, 1.0 + limit)
    assert progress.is_stuck([Counts(10, 0, 0)], 10, 1.1 + limit)
    assert not progress.is_stuck([Counts(10, 1, 0)], 10, 1.2 + limit)
    progress.end()
    assert not progress.is_stuck([Counts(10, 1, 0)], 10, 1e9)


def test_claims_beyond_what_there_is_are_no_progress() -> None:
    progress = Progress()
    progress.begin(0.0)
    stuck = [progress.is_stuck([Counts(10 + n, 10 + n, n)], 10, 5.0 * n) for n in range(40)]
    assert not stuck[5]
    assert stuck[-1]


def test_nobody_may_crawl_for_ever() -> None:
    progress = Progress()
    progress.begin(0.0)
    rows = 1000
    most = TOKEN_S + TOKEN_PER_ROW_S * rows
    now, ran = 0.0, 0
    while not progress.is_stuck([Counts(rows, ran, 0)], rows, now):
        now, ran = now + 10.0, ran + 1
    assert most < now <= most + 10.0


NODES = (b"a", b"b", b"c")
LOST_BEHIND_FIRST = [DONE, Counts(4, 4, 4), Counts(4, 4, 4)]


def test_who_sent_rows_that_reach_neither_of_two_is_the_next_to_go() -> None:
    progress = Progress()
    assert progress.culprit(LOST_BEHIND_FIRST, 10, NODES) == 1
    assert progress.culprit(LOST_BEHIND_FIRST, 10, (b"a", b"d", b"c")) == 0
    assert progress.culprit(LOST_BEHIND_FIRST, 10, (b"e", b"d", b"c")) == 1


def test_who_is_beyond_doubt_never_goes_in_place_of_the_next() -> None:
    progress = Progress()
    for _ in range(2):
        assert progress.culprit(LOST_BEHIND_FIRST, 10, (None, b"b", b"c")) == 1
    assert progress.culprit(LOST_BEHIND_FIRST, 10, (b"a", None, b"c")) == 0


def test_what_does_not_come_round_is_the_last_ones_fault_the_second_time() -> None:
    waits = [Counts(7, 7, 7), Counts(7, 7, 7), Counts(7, 7, 8)]
    progress = Progress()
    progress.fed = 7
    assert progress.culprit(waits, 8, NODES) == 0
    assert progress.culprit(waits, 8, (b"d", b"b", b"c")) == 2
    # The Client itself gave it what does not arrive.
    progress.fed = 8
    assert progress.culprit(waits, 8, (b"e", b"b", b"c")) == 0


def test_a_stage_that_is_the_only_one_has_nobody_before_it() -> None:
    progress = Progress()
    for _ in range(2):
        assert progress.culprit([Counts(7, 7, 7)], 8, (b"a",)) == 0


def test_who_has_rows_and_does_not_run_them_is_not_saved_by_the_one_before() -> None:
    progress = Progress()
    for _ in range(2):
        assert progress.culprit([DONE, Counts(10, 4, 4), Counts(4, 4, 4)], 10, NODES) == 1
