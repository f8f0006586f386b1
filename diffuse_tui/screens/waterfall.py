"""Where the time of each token of an answer went."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Static

from diffuse_tui.presenter.columns import Sort
from diffuse_tui.presenter.spans import Span
from diffuse_tui.presenter.waterfall import (
    COLUMNS,
    TOTAL,
    bar_width,
    cells,
    detail_lines,
    head_lines,
    ordered,
    scale_ms,
    token_rows,
)
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.line_table import GUTTER, LineTable
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.waterfall import Times, TokenRow


class WaterfallScreen(LiveScreen[None]):
    """A row for each pass, what is usual above, the pass under the cursor below.

    Args:
        facts: The newest picture.
        times: What was measured; may grow while the screen is open.
    """

    CRUMB = "Waterfall"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "slowest", "Slowest first"),
    ]

    def __init__(self, facts: Facts, times: Times) -> None:
        super().__init__(facts)
        self._times = times
        self._rows: tuple[TokenRow, ...] = ()

    def compose_body(self) -> ComposeResult:
        """Figures, the table, one pass."""
        yield Static("", id="waterfall-head", markup=False)
        yield LineTable(
            COLUMNS, id="waterfall", empty=(Span("no token has been measured yet", "dim"),)
        )
        yield Static("", id="waterfall-pass", markup=False)

    def on_mount(self) -> None:
        """The keys work on the table at once."""
        self.set_focus(self.query_one(LineTable))

    def show_facts(self, facts: Facts) -> None:
        """Passes may have come since the last picture."""
        del facts
        times = self._times
        if len(self._rows) != len(times.passes) or not self._rows:
            self._rows = token_rows(times.passes, times.texts, times.healed)
            self.query_one("#waterfall-head", Static).update(
                content(head_lines(times.passes, times.route))
            )
            self._show()

    def on_resize(self) -> None:
        """Bars for the new width."""
        self.call_after_refresh(self._show)

    def on_line_table_sorted(self, message: LineTable.Sorted) -> None:
        """Bring the rows into another order."""
        message.stop()
        self._show()

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Tell all of the pass under the cursor."""
        message.stop()
        self._tell(message.key)

    def action_slowest(self) -> None:
        """The slowest first, or as they came."""
        table = self.query_one(LineTable)
        table.sort = None if table.sort else Sort(TOTAL.name, falling=True)
        self._show()
        table.action_first()

    def _show(self) -> None:
        table = self.query_one(LineTable)
        scale = scale_ms(self._rows)
        width = bar_width(table.scrollable_content_region.width - GUTTER)
        rows = {str(row.number): row for row in self._rows}
        keys = [str(row.number) for row in ordered(self._rows, table.sort)]
        table.show(keys, lambda key: cells(rows[key], scale, width))
        self._tell(table.cursor_key)

    def _tell(self, key: str | None) -> None:
        lines = detail_lines(self._rows[int(key) - 1], self._times.route) if key else ()
        self.query_one("#waterfall-pass", Static).update(content(lines))
