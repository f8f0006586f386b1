"""Paragraphs, tables and rules of an answer, and their rows at a width."""

from __future__ import annotations

from typing import NamedTuple

from diffuse_tui.presenter.rich_text import Look, Row, Run, cells, wrap

MIN_COLUMN = 5
"""Cells that a column of a table needs at least; else its rows are told cell by cell."""

_BETWEEN = " │ "
_CROSS = "─┼─"

Cell = tuple[Run, ...]


class Paragraph(NamedTuple):
    """Text, its first row behind `first`, the others behind `rest` (marks, indents, quotes)."""

    runs: tuple[Run, ...]
    first: str = ""
    rest: str = ""


class Rule(NamedTuple):
    """A line across."""

    first: str = ""


class Table(NamedTuple):
    """Rows of as many cells as the head has; `aligns` are "left", "right" or "center"."""

    head: tuple[Cell, ...]
    body: tuple[tuple[Cell, ...], ...]
    aligns: tuple[str, ...]
    first: str = ""
    rest: str = ""


Flow = Paragraph | Rule | Table


def flow_rows(flow: Flow, width: int) -> list[Row]:
    """The rows of `flow` in `width` cells."""
    match flow:
        case Paragraph():
            return wrap(flow.runs, width, flow.first, flow.rest)
        case Rule():
            across = "─" * max(1, width - cells(flow.first))
            return [Row((Run(flow.first, Look.DIM), Run(across, Look.DIM)))]
        case Table():
            return _table_rows(flow, width)


def _table_rows(table: Table, width: int) -> list[Row]:
    room = width - cells(table.rest) - len(_BETWEEN) * (len(table.head) - 1)
    if room < MIN_COLUMN * len(table.head):
        return _told(table, width)
    widths = _widths(table, room)
    rows = _record(table, table.head, widths, Look.STRONG)
    across = _CROSS.join("─" * each for each in widths)
    rows.append(Row((Run(table.rest, Look.DIM), Run(across, Look.DIM)), indent=len(table.rest)))
    for record in table.body:
        rows += _record(table, record, widths, Look.PLAIN)
    first = Run(table.first, Look.DIM)
    rows[0] = rows[0]._replace(runs=(first, *rows[0].runs[1:]))
    return rows


def _widths(table: Table, room: int) -> list[int]:
    """What each column needs; the widest give way first where that is too much."""
    needs = [1] * len(table.head)
    for record in (table.head, *table.body):
        for column, cell in enumerate(record):
            needs[column] = max(needs[column], sum(cells(run.text) for run in cell))
    left, found = room, [0] * len(needs)
    by_need = sorted(range(len(needs)), key=needs.__getitem__)
    for place, column in enumerate(by_need):
        found[column] = min(needs[column], left // (len(needs) - place))
        left -= found[column]
    return found


def _record(table: Table, record: tuple[Cell, ...], widths: list[int], look: Look) -> list[Row]:
    wrapped = [
        [row.runs for row in wrap(tuple(Run(r.text, r.look | look) for r in cell), width)]
        for cell, width in zip(record, widths, strict=True)
    ]
    rows = []
    for line in range(max(map(len, wrapped))):
        runs = [Run(table.rest, Look.DIM)]
        for column, width in enumerate(widths):
            held = wrapped[column][line] if line < len(wrapped[column]) else ()
            if column:
                runs.append(Run(_BETWEEN, Look.DIM))
            runs += _aligned(held, width, table.aligns[column])
        rows.append(Row(tuple(run for run in runs[:1] + [r for r in runs[1:] if r.text])))
    return rows


def _aligned(held: Cell, width: int, align: str) -> list[Run]:
    spare = max(0, width - sum(cells(run.text) for run in held))
    before = {"right": spare, "center": spare // 2}.get(align, 0)
    return [Run(" " * before), *held, Run(" " * (spare - before))]


def _told(table: Table, width: int) -> list[Row]:
    """A table that has no room as one: each row's cells one after the other."""
    rows: list[Row] = []
    for number, record in enumerate((table.head, *table.body)):
        runs: list[Run] = []
        for column, cell in enumerate(record):
            if column:
                runs.append(Run(_BETWEEN, Look.DIM))
            runs += [Run(r.text, r.look if number else r.look | Look.STRONG) for r in cell]
        rows += wrap(runs, width, table.rest if number else table.first, table.rest)
    return rows
