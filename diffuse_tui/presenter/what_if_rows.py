"""The hosts of a model as rows of the list from which some are chosen to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.columns import Column
from diffuse_tui.presenter.coverage_map import STATE_GLYPH
from diffuse_tui.presenter.coverage_rows import holder_rows
from diffuse_tui.presenter.figures import NOTHING, size_text
from diffuse_tui.presenter.spans import Span

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_tui.presenter.coverage_rows import MapRow

COLUMNS = (
    Column("goes", 4, sortable=False),
    Column("node", 9, sortable=False),
    Column("slice", 8, sortable=False),
    Column("state", 10, 1, sortable=False),
    Column("sess", 4, 2, right=True, sortable=False),
    Column("memory", 8, 3, right=True, sortable=False),
)


def hosts(view: NetworkView | None, model: ModelView | None) -> dict[str, MapRow]:
    """The live holders of `model` by their full ids, in slice order."""
    if view is None or model is None:
        return {}
    return {row.key: row for row in holder_rows(model, view.nodes)}


def host_cells(row: MapRow, *, goes: bool) -> tuple[Span, ...]:
    """A host's cells; `goes` is whether it is marked."""
    node = row.nodes[0]
    glyph, tone = STATE_GLYPH[row.state]
    return (
        Span("[x]" if goes else "[ ]", "warning" if goes else "dim"),
        Span(f"{clean_line(node.short, 8)}{'*' if row.me else ''}", "mine" if row.me else "plain"),
        Span(str(row.part)),
        Span(f"{glyph} {row.state}", tone),
        Span(str(node.sessions) if node.sessions else NOTHING),
        Span(size_text(node.capacity) if node.capacity else NOTHING),
    )
