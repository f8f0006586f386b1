"""The coverage map: one widget that draws lines, whatever the number of layers and holders."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.css.scalar import Unit
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.widget import Widget

from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.coverage_map import (
    counts_line,
    gap_lines,
    holder_line,
    legend,
    map_frame,
    ruler,
)
from diffuse_tui.presenter.coverage_rows import grouped, holder_rows, layer_text
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.spans import Span
from diffuse_tui.presenter.standing import holds
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from textual.events import Click
    from textual.strip import Strip

    from diffuse_core.domain.view import ModelView, NodeView
    from diffuse_tui.presenter.coverage_map import MapFrame
    from diffuse_tui.presenter.coverage_rows import MapRow
    from diffuse_tui.presenter.spans import Line

_LEAST_ROWS = 3
"""Below as many rows of holders nothing is gained by joining equal ones."""


class CoverageMap(ScrollView, can_focus=True):
    """Layers across, holders down. Ruler and counts stay while the holders scroll.

    Equal holders share a row where there are more holders than rows fit. A cursor goes over the
    rows, another one over the layers.
    """

    BORDER_TITLE = "Coverage"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("pageup", "leap(-1.0)", "Page up", show=False),
        Binding("pagedown", "leap(1.0)", "Page down", show=False),
        Binding("ctrl+u", "leap(-0.5)", "Half a page up", show=False),
        Binding("ctrl+d", "leap(0.5)", "Half a page down", show=False),
        Binding("g", "step(-1000000)", "First row", show=False),
        Binding("G", "step(1000000)", "Last row", show=False),
        Binding("left,h", "layer(-1)", "Layer before", show=False),
        Binding("right,l", "layer(1)", "Next layer", show=False),
        Binding("home", "layer(-1000000)", "First layer", show=False),
        Binding("end", "layer(1000000)", "Last layer", show=False),
        Binding("u", "group", "Join equal holders, or do not", show=False),
        Binding("enter", "open", "Open", show=False),
        Binding("escape", "clear", "No cursor", show=False),
    ]

    class NodeChosen(Message):
        """Please tell all about a node."""

        def __init__(self, node: str) -> None:
            super().__init__()
            self.node = node

    def __init__(self) -> None:
        super().__init__(id="map")
        self._painter = Painter(self)
        self._model: ModelView | None = None
        self._holders: tuple[MapRow, ...] = ()
        self._frame: MapFrame | None = None
        self._above: tuple[Line, ...] = ()
        self._below: tuple[Line, ...] = ()
        self._drawn: tuple[object, ...] = ()
        self._join: bool | None = None
        self._unfolded: frozenset[str] = frozenset()
        self._row: str | None = None
        self._row_at = 0
        self._layer: int | None = None

    def show_model(self, model: ModelView | None, nodes: tuple[NodeView, ...]) -> None:
        """Draw `model` as held by `nodes`; scroll position and cursors stay.

        Nothing is done where nothing has changed that is drawn.
        """
        held = [node for node in nodes if model is not None and holds(node, model)]
        drawn = (
            model,
            self._room(),
            [(one.node, one.short, one.slice, one.state, one.liveness, one.me) for one in held],
        )
        if drawn == self._drawn:
            return
        if self._model is None or model is None or name_of(model) != name_of(self._model):
            self._row = self._layer = None
            self._unfolded = frozenset()
        self._drawn, self._model = drawn, model
        self._holders = holder_rows(model, held) if model is not None else ()
        self._lay_out()

    def on_resize(self) -> None:
        """Lay out for the new width."""
        self._lay_out()

    # --- layout -----------------------------------------------------------------------------

    def _room(self) -> int:
        """Rows of holders that there is room for at most."""
        share, around = self.styles.max_height, self.parent
        most = self.size.height
        if share is not None and share.unit == Unit.HEIGHT and isinstance(around, Widget):
            most = max(most, int(around.size.height * share.value / 100) - self.gutter.height)
        return most - len(self._above) - len(self._below)

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if self._model is None:
            self._frame, self._below = None, ()
            told = "No model on this network yet. F7: host one here"
            if not self._drawn:
                told = "The network is not known yet."
            self._above = ((Span(f" {told}", "dim"),),)
            self.border_title, self.border_subtitle = self.BORDER_TITLE, ""
        elif width > 0:
            self._lay_out_model(self._model, width)
            self.border_subtitle = legend(width - 4)
        height = len(self._above) + self._rows + len(self._below)
        if self.virtual_size.height != height:
            self.virtual_size = Size(width, height)
            self.refresh(layout=True)
        self._keep_row()
        self.refresh()

    def _lay_out_model(self, model: ModelView, width: int) -> None:
        rows = self._holders
        if self._joined:
            rows = grouped(rows, self._unfolded)
        self._frame = frame = map_frame(model, rows, width)
        self._above = (ruler(frame, self._layer),)
        below = [counts_line(frame), *gap_lines(frame)]
        if self._layer is not None:
            told = layer_text(model, self._holders, self._layer, width)
            below.append((Span(told, "accent"),))
        self._below = tuple(below)
        self.border_title = self.BORDER_TITLE
        if len(rows) != len(self._holders):
            many = f"{len(self._holders)} holders in {counted(len(rows), 'row')}"
            joined = f"{many} · u: each its own"
            self.border_title = f"{self.BORDER_TITLE} · {joined}"

    @property
    def _joined(self) -> bool:
        """Whether equal holders share a row."""
        if self._join is None:
            return len(self._holders) > max(_LEAST_ROWS, self._room())
        return self._join

    @property
    def _rows(self) -> int:
        return len(self._frame.rows) if self._frame else 0

    @property
    def _visible(self) -> int:
        around = len(self._above) + len(self._below)
        return max(1, self.scrollable_content_region.height - around)

    # --- the cursors ------------------------------------------------------------------------

    def _keep_row(self) -> None:
        """The cursor stays on its row, or where it was when that is gone."""
        if self._row is None or self._frame is None or not self._rows:
            return
        keys = [row.key for row in self._frame.rows]
        if self._row in keys:
            self._row_at = keys.index(self._row)
        else:
            self._row_at = min(self._row_at, len(keys) - 1)
            self._row = keys[self._row_at]

    def _go_to(self, at: int) -> None:
        if self._frame is None or not self._rows:
            return
        self._row_at = max(0, min(self._rows - 1, at))
        self._row = self._frame.rows[self._row_at].key
        top, seen = self.scroll_offset.y, self._visible
        wanted = min(max(top, self._row_at - seen + 1), self._row_at)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)
        self.refresh()

    def action_step(self, rows: int) -> None:
        """Move the cursor by rows; the first time it comes to the first row in sight."""
        if self._row is None and abs(rows) == 1:
            self._go_to(self.scroll_offset.y)
        else:
            self._go_to(self._row_at + rows)

    def action_leap(self, heights: float) -> None:
        """Move by a part of what is seen at once."""
        rows = max(1, int(abs(heights) * self._visible))
        self._go_to(self._row_at + (rows if heights > 0 else -rows))

    def action_layer(self, step: int) -> None:
        """Move the cursor over the layers; it starts at the weakest ones."""
        if self._model is None:
            return
        if self._layer is None:
            weak = self._model.weakest
            at = {-1: self._model.layers - 1, 1: weak.start if weak else 0}.get(step, step)
        else:
            at = self._layer + step
        self._point_at(at)

    def _point_at(self, layer: int) -> None:
        if self._model is not None:
            self._layer = max(0, min(self._model.layers - 1, layer))
            self._lay_out()

    def action_group(self) -> None:
        """Join equal holders in one row, or give each its own."""
        self._join = not self._joined
        self._unfolded = frozenset()
        self._lay_out()
        if self._row is not None:
            self._go_to(self._row_at)

    def action_open(self) -> None:
        """Tell of the holder under the cursor; show the holders that share its row."""
        if self._row is None or self._frame is None or not self._rows:
            self._go_to(self.scroll_offset.y)
            return
        row = self._frame.rows[self._row_at]
        if len(row.nodes) == 1:
            self.post_message(self.NodeChosen(row.nodes[0].node))
            return
        self._unfolded ^= {row.key}
        self._lay_out()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc is the screen's when there is no cursor."""
        del parameters
        return action != "clear" or self._row is not None or self._layer is not None

    def action_clear(self) -> None:
        """Take both cursors away."""
        self._row = self._layer = None
        self._lay_out()

    def on_click(self, event: Click) -> None:
        """The cursors go where the mouse is; a click on the row of the cursor opens it."""
        at = event.get_content_offset(self)
        if at is None or self._frame is None:
            return
        row = self._row_of(at.y)
        there = row is not None and self._row is not None and row == self._row_at
        layer = self._frame.layer_at(at.x)
        if layer is not None:
            self._point_at(layer)
        if row is not None:
            self._go_to(row)
            if there or event.chain == 2:
                self.action_open()

    # --- drawing ----------------------------------------------------------------------------

    def _foot(self) -> int:
        """Where the counts are: at the bottom of what is visible, or after the last holder."""
        above, below = len(self._above), len(self._below)
        height = self.scrollable_content_region.height
        return max(above, min(height - below, above + self._rows))

    def _row_of(self, y: int) -> int | None:
        above = len(self._above)
        row = y - above + self.scroll_offset.y
        return row if above <= y < self._foot() and row < self._rows else None

    def render_line(self, y: int) -> Strip:
        """Draw the line at `y` of the visible region."""
        return self._painter.strip(self._line(y), self.scrollable_content_region.width)

    def _line(self, y: int) -> Line:
        if y < len(self._above):
            return self._above[y]
        foot = self._foot()
        if y >= foot:
            return self._below[y - foot] if y - foot < len(self._below) else ()
        row = self._row_of(y)
        if self._frame is None or row is None:
            return ()
        return holder_line(self._frame, row, cursor=self._row is not None and row == self._row_at)
