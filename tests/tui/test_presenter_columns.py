from __future__ import annotations

import pytest
from rich.cells import cell_len

from diffuse_tui.presenter.columns import (
    Column,
    Sort,
    column_at,
    fit,
    heading_line,
    neighbour,
    pages,
    row_line,
    turned,
)
from diffuse_tui.presenter.spans import Span, plain

COLUMNS = (
    Column("id", 4),
    Column("title", 6, 2, grows=True),
    Column("size", 5, 3, right=True, falls=True),
    Column("note", 8, 1, sortable=False),
)


def names(width: int) -> list[str]:
    return [" ".join(COLUMNS[place].name for place, _ in page) for page in pages(COLUMNS, width)]


def test_the_least_important_columns_go_to_later_pages() -> None:
    assert names(26) == ["id title size note"]
    assert names(25) == ["id title note", "id size note"]
    assert names(20) == ["id title note", "id size note"]
    assert names(13) == ["id note", "id title", "id size"]
    assert names(8) == ["id", "id title", "id size", "id note"]
    assert names(0) == ["id", "id title", "id size", "id note"]


def test_one_column_takes_what_is_left() -> None:
    assert [shown.width for shown in pages(COLUMNS, 40)[0]] == [4, 20, 5, 8]


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日 …"),
        ("x", 0, ""),
    ],
)
def test_text_takes_exactly_its_cells(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown
    assert cell_len(fit(text, width)) == width


def test_rows_and_headings_share_their_columns() -> None:
    page = pages(COLUMNS, 26)[0]
    cells = (Span("a1"), Span("long title"), Span("12", "good"), Span("n"))
    assert plain(row_line(COLUMNS, page, cells)) == "a1   long …    12 n       "
    assert plain(heading_line(COLUMNS, page, None)) == "id   title   size note    "
    assert plain(heading_line(COLUMNS, page, Sort("size", falling=True))) == (
        "id   title  size▼ note    "
    )
    assert plain(heading_line(COLUMNS, page, Sort("id"))).startswith("id▲  ")
    assert [column_at(page, x) for x in (0, 3, 4, 5, 12, 25, 26)] == [0, 0, None, 1, 2, 3, None]


def test_a_sort_turns_round_and_then_ends() -> None:
    first = turned(COLUMNS, None, "size")
    assert first == Sort("size", falling=True)
    second = turned(COLUMNS, first, "size")
    assert second == Sort("size", falling=False)
    assert turned(COLUMNS, second, "size") is None
    assert turned(COLUMNS, second, "id") == Sort("id")
    assert turned(COLUMNS, second, "note") == second


def test_the_column_beside_goes_round_through_the_own_order() -> None:
    seen = [None]
    for _ in range(4):
        seen.append(neighbour(COLUMNS, seen[-1], 1))
    assert seen == [None, Sort("id"), Sort("title"), Sort("size", falling=True), None]
    assert neighbour(COLUMNS, None, -1) == Sort("size", falling=True)
