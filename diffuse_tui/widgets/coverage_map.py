"""The coverage map: one widget that draws lines, whatever the number of layers and holders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.scroll_view import ScrollView

from diffuse_tui.presenter.coverage_map import (
    counts_line,
    gap_lines,
    holder_line,
    legend,
    map_frame,
    ruler,
)
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from textual.strip import Strip

    from diffuse_core.domain.view import ModelView, NodeView
    from diffuse_tui.presenter.coverage_map import MapFrame
    from diffuse_tui.presenter.spans import Line


class CoverageMap(ScrollView, can_focus=True):
    """Layers across, holders down. Ruler and counts stay while the holders scroll."""

    BORDER_TITLE = "Coverage"

    def __init__(self) -> None:
        super().__init__(id="map")
        self._painter = Painter(self)
        self._model: ModelView | None = None
        self._held_by: tuple[NodeView, ...] = ()
        self._frame: MapFrame | None = None
        self._above: tuple[Line, ...] = ()
        self._below: tuple[Line, ...] = ()

    def show_model(self, model: ModelView | None, nodes: tuple[NodeView, ...]) -> None:
        """Draw `model` as held by `nodes`; the scroll position stays."""
        self._model, self._held_by = model, nodes
        self._lay_out()

    def on_resize(self) -> None:
        """Lay out for the new width."""
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if self._model is None:
            self._frame, self._below = None, ()
            self._above = ((Span(" no model to show", "dim"),),)
        elif width > 0:
            frame = map_frame(self._model, self._held_by, width)
            self._frame = frame
            self._above = (ruler(frame),)
            self._below = (counts_line(frame), *gap_lines(frame))
        self.border_subtitle = legend(width - 4) if self._frame else ""
        height = len(self._above) + self._rows + len(self._below)
        if self.virtual_size.height != height:
            self.virtual_size = Size(width, height)
            self.refresh(layout=True)
        self.refresh()

    @property
    def _rows(self) -> int:
        return len(self._frame.holders) if self._frame else 0

    def render_line(self, y: int) -> Strip:
        """Draw the line at `y` of the visible region."""
        return self._painter.strip(self._line(y), self.scrollable_content_region.width)

    def _line(self, y: int) -> Line:
        above, below = len(self._above), len(self._below)
        if y < above:
            return self._above[y]
        # Counts stick to the bottom of what is visible, or follow the last holder.
        foot = min(self.scrollable_content_region.height - below, above + self._rows)
        if y >= max(foot, above):
            index = y - max(foot, above)
            return self._below[index] if index < below else ()
        row = y - above + self.scroll_offset.y
        if self._frame is None or row >= self._rows:
            return ()
        return holder_line(self._frame, row)
