"""What this machine does for the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widget import Widget

from diffuse_tui.presenter.machine import machine_lines, met_text
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from textual.strip import Strip

    from diffuse_core.domain.view import NetworkView, Telemetry


class MachinePanel(Widget):
    """CPU, memory, what is held, traffic."""

    BORDER_TITLE = "This machine"

    def __init__(self) -> None:
        super().__init__(id="machine")
        self._painter = Painter(self)
        self._telemetry: Telemetry | None = None

    def show_telemetry(self, telemetry: Telemetry | None) -> None:
        """Draw new figures."""
        if telemetry != self._telemetry:
            self._telemetry = telemetry
            self.refresh()

    def show_view(self, view: NetworkView) -> None:
        """Tell how others reach this node."""
        self.border_subtitle = met_text(view)

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        width = self.size.width
        lines = machine_lines(self._telemetry, width, self.size.height)
        return self._painter.strip(lines[y] if y < len(lines) else (), width)
