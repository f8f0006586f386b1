"""Columns of a table: which fit into a width, and rows and headings as lines of that width."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from diffuse_tui.presenter.spans import Span, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_tui.presenter.spans import Line

GAP = 1
"""Cells between two columns."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: Its heading, and what a sort calls it.
        width: Cells it takes; the least, for one that `grows`.
        rank: 0 for one that is always shown; of the others those with the highest drop first.
        right: Its text stands at the right edge.
        grows: It takes what width is left over (the first of such columns does).
        falls: Sorting by it starts with the largest.
        sortable: Whether the table may be sorted by it.
    """

    name: str
    width: int
    rank: int = 0
    right: bool = False
    grows: bool = False
    falls: bool = False
    sortable: bool = True


class Sort(NamedTuple):
    """By which column a table is sorted, and whether the largest comes first."""

    column: str
    falling: bool = False


class Shown(NamedTuple):
    """A column that is shown: its place among all, and the cells it gets."""

    place: int
    width: int


Page = tuple[Shown, ...]
"""Columns that are shown together, in their order."""


def pages(columns: Sequence[Column], width: int) -> tuple[Page, ...]:
    """All columns in as few pages of `width` cells as are needed; the most important come first.

    Those of rank 0 are on every page. A page has room for at least one column that none before
    had, even where that is cut off.
    """
    fixed = [index for index, column in enumerate(columns) if column.rank == 0]
    by_rank = sorted(
        (index for index, column in enumerate(columns) if column.rank),
        key=lambda index: columns[index].rank,
    )
    room = width - sum(columns[index].width + GAP for index in fixed) + GAP
    found = [_page(columns, fixed, _taken(columns, by_rank, room), width)]
    seen = {shown.place for shown in found[0]}
    while unseen := [index for index in range(len(columns)) if index not in seen]:
        new = _taken(columns, unseen, room) or unseen[:1]
        left = room - sum(columns[index].width + GAP for index in new)
        others = [index for index in by_rank if index not in new]
        found.append(_page(columns, fixed, new + _taken(columns, others, left), width))
        seen.update(new)
    return tuple(found)


def _taken(columns: Sequence[Column], wanted: Sequence[int], room: int) -> list[int]:
    """Those of `wanted` that fit into `room`, the first ones first."""
    taken = []
    for index in wanted:
        needed = columns[index].width + GAP
        if needed <= room:
            taken.append(index)
            room -= needed
    return taken


def _page(
    columns: Sequence[Column], fixed: Sequence[int], others: Sequence[int], width: int
) -> Page:
    indexes = sorted((*fixed, *others))
    spare = width - sum(columns[index].width + GAP for index in indexes) + GAP
    page = []
    for index in indexes:
        cells = columns[index].width
        if columns[index].grows and spare > 0:
            cells, spare = cells + spare, 0
        page.append(Shown(index, cells))
    return tuple(page)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells, cut with an ellipsis or filled with blanks."""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    blanks = " " * (width - length)
    return blanks + text if right else text + blanks


def row_line(columns: Sequence[Column], page: Page, cells: Sequence[Span]) -> Line:
    """A row's cells (one for each of `columns`) as one line."""
    spans: list[Span] = []
    for index, width in page:
        if spans:
            spans.append(Span(" " * GAP, spans[-1].tone))
        text, tone = cells[index]
        spans.append(Span(fit(text, width, right=columns[index].right), tone))
    return merged(spans)


def heading_line(columns: Sequence[Column], page: Page, sort: Sort | None) -> Line:
    """The names of the columns; an arrow beside the one that the table is sorted by."""
    spans: list[Span] = []
    for index, width in page:
        column = columns[index]
        if spans:
            spans.append(Span(" " * GAP, "label"))
        if sort is not None and sort.column == column.name:
            arrow = "▼" if sort.falling else "▲"
            name = column.name[: max(0, width - 1)] + arrow
            spans.append(Span(fit(name, width, right=column.right), "accent"))
        else:
            spans.append(Span(fit(column.name, width, right=column.right), "label"))
    return merged(spans)


def column_at(page: Page, x: int) -> int | None:
    """The index of the column that covers cell `x`; None beside all of them."""
    for index, width in page:
        if 0 <= x < width:
            return index
        x -= width + GAP
    return None


def turned(columns: Sequence[Column], sort: Sort | None, name: str) -> Sort | None:
    """What sorting by `name` once more means: its first direction, the other one, not at all."""
    column = next((c for c in columns if c.name == name and c.sortable), None)
    if column is None:
        return sort
    if sort is None or sort.column != name:
        return Sort(name, column.falls)
    return Sort(name, not column.falls) if sort.falling == column.falls else None


def neighbour(columns: Sequence[Column], sort: Sort | None, step: int) -> Sort | None:
    """The sort by the next (`step` 1) or the previous (-1) column; None between last and first."""
    names = [None, *(column.name for column in columns if column.sortable)]
    here = sort.column if sort is not None else None
    at = names.index(here) if here in names else 0
    name = names[(at + step) % len(names)]
    return turned(columns, None, name) if name is not None else None
