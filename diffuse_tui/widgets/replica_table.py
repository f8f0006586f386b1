"""The replica table: every node, updated cell by cell so that cursor and scroll stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import DataTable

from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.replicas import COLUMNS, replica_rows
from diffuse_tui.widgets.focus import PageTarget
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_tui.presenter.replicas import Row
    from diffuse_tui.presenter.spans import Span


class _FirstCell(Text):
    """The cell that carries its row's place, by which the table sorts."""

    place = 0


class ReplicaTable(PageTarget, DataTable[Text]):
    """One row per node."""

    BORDER_TITLE = "Replicas"

    def __init__(self) -> None:
        super().__init__(id="replicas", cursor_type="row", cell_padding=0)
        self._shown: dict[str, tuple[Span, ...]] = {}
        self._order: list[str] = []
        self._painter = Painter(self)

    def on_mount(self) -> None:
        """Set the columns up."""
        for name, width in COLUMNS:
            self.add_column(Text(name), key=name, width=width)

    def show_view(self, view: NetworkView, model: ModelView | None) -> None:
        """Bring the rows up to date, touching only what changed."""
        rows = replica_rows(view, model)
        current = self._under_cursor()
        keys = [row.key for row in rows]
        alive = set(keys)
        for key in [key for key in self._shown if key not in alive]:
            self.remove_row(key)
            del self._shown[key]
        for row in rows:
            self._put(row)
        if keys != self._order:
            self._arrange(keys, current)
        hosts = sum(1 for node in view.nodes if node.role == "host")
        self.border_subtitle = f"{counted(hosts, 'host')} · {counted(len(view.nodes), 'node')}"

    def _under_cursor(self) -> str | None:
        row = self.cursor_row
        return self.ordered_rows[row].key.value if self.is_valid_row_index(row) else None

    def _put(self, row: Row) -> None:
        before = self._shown.get(row.key)
        self._shown[row.key] = row.cells
        if before is None:
            first, *rest = (self._cell(span) for span in row.cells)
            self.add_row(_FirstCell(first.plain, first.style), *rest, key=row.key)
            return
        for (name, _), old, new in zip(COLUMNS, before, row.cells, strict=True):
            if old != new:
                cell = self._cell(new)
                if name == COLUMNS[0][0]:
                    cell = _FirstCell(cell.plain, cell.style)
                    cell.place = self._order.index(row.key) if row.key in self._order else 0
                self.update_cell(row.key, name, cell)

    def _cell(self, span: Span) -> Text:
        return Text(
            span.text, self._painter.own_style(span.tone), no_wrap=True, overflow="ellipsis"
        )

    def _arrange(self, keys: list[str], current: str | None) -> None:
        """Sort rows into the order of `keys`; the cursor stays on its node."""
        for place, key in enumerate(keys):
            cell = self.get_cell(key, COLUMNS[0][0])
            if isinstance(cell, _FirstCell):
                cell.place = place
        self.sort(COLUMNS[0][0], key=lambda cell: cell.place)
        self._order = keys
        if current is not None and current in self._shown:
            self.move_cursor(row=self.get_row_index(current), scroll=False)
