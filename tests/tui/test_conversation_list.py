"""Rows and lines of the list of conversations."""

from __future__ import annotations

from diffuse_tui.presenter.columns import Sort, pages
from diffuse_tui.presenter.conversation_list import (
    CHANGED,
    COLUMNS,
    FOUND,
    FOUND_COLUMNS,
    MODEL,
    TITLE,
    TURNS,
    cells,
    deleted_line,
    empty_line,
    in_order,
    model_name,
    status_line,
)
from diffuse_tui.presenter.dialogue import DialogueHead
from diffuse_tui.presenter.spans import plain


def head(number: int, title: str = "Heaps", **more: object) -> DialogueHead:
    facts = {"model": "tiny@ab", "changed_at": 1000.0 - number, "turns": number} | more
    return DialogueHead(id=number, title=title, **facts)


def test_a_row_tells_title_age_turns_and_model() -> None:
    row = cells(head(2), 1000.0 + 7200, opened=False, searching=False)
    assert [span.text for span in row] == ["Heaps", "2 h", "2", "tiny"]
    assert len(row) == len(COLUMNS)


def test_the_open_one_has_a_mark_besides_its_colour() -> None:
    first, *_ = cells(head(2), 0.0, opened=True, searching=False)
    assert (first.text, first.tone) == ("● Heaps", "strong")


def test_a_search_shows_where_the_words_are() -> None:
    row = cells(head(1, snippet="…a heap\x1b is"), 0.0, opened=False, searching=True)
    assert len(row) == len(FOUND_COLUMNS)
    assert row[1].text == "…a heap␛ is"
    assert cells(head(1), 0.0, opened=False, searching=True)[1].text == "in the title"


def test_hostile_titles_and_models_are_one_clean_line() -> None:
    row = cells(head(1, "a\n\x1b[2Jb", model="m\x07\n@f"), 0.0, opened=False, searching=False)
    assert row[0].text == "a ␛[2Jb"
    assert row[3].text == "m␇ "
    assert cells(head(1, ""), 0.0, opened=False, searching=False)[0].text == "untitled"


def test_models_without_a_fingerprint_or_name() -> None:
    assert [model_name(each) for each in ("a@b@c", "plain", "@f", "")] == [
        "a@b",
        "plain",
        "@f",
        "—",
    ]


def test_sorting_by_each_column() -> None:
    heads = [head(3, "b", model="z@1"), head(1, "C", model="y@1"), head(2, "a", model="x@1")]

    def order(column: str, *, falling: bool = False) -> list[int]:
        return [each.id for each in in_order(heads, Sort(column, falling))]

    assert [each.id for each in in_order(heads, None)] == [3, 1, 2]
    assert order(TITLE) == [2, 3, 1]
    assert order(TITLE, falling=True) == [1, 3, 2]
    assert order(MODEL) == [2, 1, 3]
    assert order(TURNS, falling=True) == [3, 2, 1]
    assert order(CHANGED) == [1, 2, 3]
    assert order(CHANGED, falling=True) == [3, 2, 1]
    assert order(FOUND) == [3, 1, 2]


def test_the_lines_around_the_list() -> None:
    assert plain(empty_line("")) == "No conversation is kept yet. n begins one."
    assert plain(empty_line(" x\n")) == "Nothing has “x”. Esc shows all."
    assert plain(status_line(1, 500, "", 2048)) == "1 conversation · 2.0 KiB on this machine"
    assert plain(status_line(2, 500, "", None)) == "2 conversations · gone when the app ends"
    assert plain(status_line(200, 200, "heap", 0)) == "200 or more with “heap” · Esc shows all"
    assert plain(deleted_line("Heaps", 1)) == "deleted “Heaps” · u brings it back"
    assert plain(deleted_line("x" * 99, 2)).endswith("…” · u brings it back · 2 deleted")
    assert len(plain(deleted_line("x" * 99, 99))) <= 60


def test_what_was_found_is_seen_at_60_columns() -> None:
    for columns in (COLUMNS, FOUND_COLUMNS):
        first = pages(columns, 57)[0]
        assert sum(width + 1 for _, width in first) <= 58
        assert {columns[shown.place].name for shown in first} >= {columns[0].name}
