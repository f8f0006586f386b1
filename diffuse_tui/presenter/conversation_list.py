"""The list of kept conversations as rows of a table, and what is said below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.answerer import id_of
from diffuse_tui.presenter.columns import Column
from diffuse_tui.presenter.figures import NOTHING, age_text, size_text
from diffuse_tui.presenter.spans import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_tui.presenter.columns import Sort
    from diffuse_tui.presenter.dialogue import DialogueHead
    from diffuse_tui.presenter.spans import Line

TITLE, CHANGED, TURNS, MODEL, FOUND = "title", "changed", "turns", "model", "found"
COLUMNS = (
    Column(TITLE, 24, grows=True),
    Column(CHANGED, 7, 1, right=True, falls=False),
    Column(TURNS, 5, 2, right=True, falls=True),
    Column(MODEL, 24, 3),
)
"""`changed` is an age, so the smallest is the newest."""
FOUND_COLUMNS = (Column(TITLE, 20), Column(FOUND, 34, grows=True), *COLUMNS[1:])
"""While a search is on: where its words are."""

OPEN_MARK = "● "

_EMPTY: Line = (
    Span("No conversation is kept yet. ", "dim"),
    Span("n", "accent"),
    Span(" begins one.", "dim"),
)


def model_name(model: str) -> str:
    """The name in `id@fingerprint`."""
    return clean_line(id_of(model), 60) or NOTHING


def cells(head: DialogueHead, now: float, *, opened: bool, searching: bool) -> tuple[Span, ...]:
    """One row: a cell for each of `COLUMNS`, or of `FOUND_COLUMNS` while searching.

    Args:
        head: The conversation.
        now: Unix time in seconds.
        opened: Whether it is the one in the chat.
        searching: Whether the row tells where the words were found.
    """
    title = clean_line(head.title, 200) or "untitled"
    first = Span(f"{OPEN_MARK}{title}", "strong") if opened else Span(title)
    rest = (
        Span(age_text(now - head.changed_at), "dim"),
        Span(str(head.turns), "dim"),
        Span(model_name(head.model), "dim"),
    )
    if not searching:
        return (first, *rest)
    found = clean_line(head.snippet, 300)
    return (first, Span(found or "in the title", "plain" if found else "dim"), *rest)


def in_order(heads: Sequence[DialogueHead], sort: Sort | None) -> list[DialogueHead]:
    """Sorted as asked for; newest first without a wish."""
    if sort is None or sort.column == FOUND:
        return list(heads)
    if sort.column == TITLE:
        return sorted(heads, key=lambda head: head.title.casefold(), reverse=sort.falling)
    if sort.column == MODEL:
        return sorted(heads, key=lambda head: head.model.casefold(), reverse=sort.falling)
    if sort.column == TURNS:
        return sorted(heads, key=lambda head: head.turns, reverse=sort.falling)
    return sorted(heads, key=lambda head: head.changed_at, reverse=not sort.falling)


def empty_line(query: str) -> Line:
    """What stands in the place of rows when there are none."""
    if not query.strip():
        return _EMPTY
    return (
        Span(f"Nothing has “{clean_line(query.strip(), 40)}”. ", "dim"),
        Span("Esc", "accent"),
        Span(" shows all.", "dim"),
    )


def status_line(shown: int, limit: int, query: str, size: int | None) -> Line:
    """How many there are, and how much they take; `size` is None where no disk keeps them."""
    many = f"{shown} or more" if shown >= limit else str(shown)
    if query.strip():
        return (Span(f"{many} with “{clean_line(query.strip(), 40)}” · Esc shows all", "dim"),)
    noun = "conversation" if shown == 1 else "conversations"
    where = f"{size_text(size)} on this machine" if size is not None else "gone when the app ends"
    return (Span(f"{many} {noun} · {where}", "dim"),)


def deleted_line(title: str, count: int) -> Line:
    """After `d`: how to have it back. `count` is how many could be brought back."""
    return (
        Span(f"deleted “{clean_line(title, 17)}” · ", "warning"),
        Span("u", "accent"),
        Span(" brings it back" + (f" · {count} deleted" if count > 1 else ""), "warning"),
    )
