"""The replica table: every node of the network, sorted and filtered as one likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.replica_filter import node_filter
from diffuse_tui.presenter.replicas import (
    COLUMNS,
    counted_states,
    replica_cells,
    replica_order,
)
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.filter_panel import FilterPanel
from diffuse_tui.widgets.focus import PageTarget
from diffuse_tui.widgets.line_table import LineTable

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_tui.presenter.history import NodeHistory

_NO_NODE = (Span("No node yet; r connects again at once.", "dim"),)
_NO_MATCH = (Span("No node matches these words; Esc clears them.", "warning"),)


class ReplicaTable(PageTarget, LineTable):
    """The rows; the panel around them has the frame and the filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy_id", "Copy the node's id", show=False),
        Binding("Y", "copy_row", "Copy the row", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(COLUMNS, id="replicas", empty=_NO_NODE)

    def action_copy_id(self) -> None:
        """Hand what the mouse has selected, else the full id, to the terminal's clipboard."""
        key = self.cursor_key
        selected = self.screen.get_selected_text()
        if selected:
            copy(self, selected, "Selection")
        elif key is not None:
            copy(self, key, "The id")

    def action_copy_row(self) -> None:
        """Hand the row under the cursor to the terminal's clipboard."""
        if self.cursor_key is not None:
            copy(self, self.row_text(self.cursor_key), "The row")


class ReplicaPanel(FilterPanel):
    """A frame around the table, and a filter line at its foot when there is a filter."""

    BORDER_TITLE = "Replicas"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter the replicas", show=False),
        Binding("escape", "clear_filter", "Clear the filter", show=False),
    ]

    class NodeChosen(Message):
        """Please tell all about a node."""

        def __init__(self, node: str) -> None:
            super().__init__()
            self.node = node

    def __init__(self) -> None:
        super().__init__(
            "replica-panel", "id, state, role, 12:18, layer:14, relayed … (! inverts)"
        )
        self._view: NetworkView | None = None
        self._model: ModelView | None = None
        self._history: NodeHistory | None = None
        self._by_id: dict[str, NodeView] = {}
        self._words = ""

    def compose(self) -> ComposeResult:
        """The table; the filter line comes with the first filter."""
        yield ReplicaTable()

    @property
    def rows(self) -> ReplicaTable:
        """The rows."""
        return self.query_one(ReplicaTable)

    def show_view(self, view: NetworkView, model: ModelView | None, history: NodeHistory) -> None:
        """Bring the rows up to date; sort, filter, cursor and scroll stay."""
        self._view, self._model, self._history = view, model, history
        self._by_id = {node.node: node for node in view.nodes}
        self._arrange()

    def _arrange(self) -> None:
        if self._view is None:
            return
        nodes = replica_order(self._view, self._model, self.rows.sort)
        shown = node_filter(self._words, self._model)
        left = nodes if shown is None else [node for node in nodes if shown(node)]
        self.rows.empty = _NO_NODE if shown is None else _NO_MATCH
        self.rows.show([node.node for node in left], self._cells)
        self.border_subtitle = self._said(self._view, None if shown is None else len(left))

    def _cells(self, key: str) -> tuple[Span, ...]:
        node = self._by_id[key]
        if self._history is None:
            return replica_cells(node, self._model)
        return replica_cells(node, self._model, self._history.series(key, "speed"))

    @staticmethod
    def _said(view: NetworkView, left: int | None) -> str:
        if left is not None:
            return f"{left} of {len(view.nodes)} · Esc shows all"
        hosts = sum(1 for node in view.nodes if node.role == "host")
        told = (counted(hosts, "host"), counted(len(view.nodes), "node"))
        return " · ".join((*filter(None, (counted_states(view.nodes),)), *told))

    # --- what the table and the filter tell ---------------------------------------------------

    def on_line_table_sorted(self, message: LineTable.Sorted) -> None:
        """Another order."""
        message.stop()
        self._arrange()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Ask for all that is known of a node."""
        message.stop()
        self.post_message(self.NodeChosen(message.key))

    def filter_by(self, words: str) -> None:
        """Leave only nodes with these words."""
        if words != self._words:
            self._words = words
            self._arrange()
