"""What this machine does for the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from diffuse_tui.presenter.machine import met_text
from diffuse_tui.presenter.machine_history import MachineHistory
from diffuse_tui.presenter.machine_lines import machine_lines
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from textual.strip import Strip

    from diffuse_core.domain.view import NetworkView, Telemetry
    from diffuse_tui.presenter.spans import Line


class MachinePanel(Widget, can_focus=True):
    """CPU, memory, GPU, what is held, traffic: what fits, with what they were before."""

    BORDER_TITLE = "This machine"

    def __init__(self) -> None:
        super().__init__(id="machine")
        self._painter = Painter(self)
        self._telemetry: Telemetry | None = None
        self._history = MachineHistory()
        self._lines: tuple[Line, ...] | None = None

    def show_view(self, view: NetworkView, telemetry: Telemetry | None) -> None:
        """Draw the figures that came with a new picture."""
        self.border_subtitle = Content(met_text(view))
        self._history.note(view.taken_at, telemetry)
        self._telemetry = telemetry
        self._lines = None
        self.refresh()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._lines = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        width, height = self.size
        if self._lines is None:
            self._lines = machine_lines(self._telemetry, self._history, width, height)
        return self._painter.strip(self._lines[y] if y < len(self._lines) else (), width)
