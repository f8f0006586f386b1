"""The last events, newest at the bottom, wrapped to the width there is."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.scroll_view import ScrollView

from diffuse_tui.presenter.events import wrapped_event
from diffuse_tui.widgets.focus import PageTarget
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.strip import Strip

    from diffuse_core.domain.view import Event
    from diffuse_tui.presenter.spans import Line

MAX_EVENTS = 500


class EventLog(PageTarget, ScrollView, can_focus=True):
    """A bounded log that follows its end unless scrolled away from it."""

    BORDER_TITLE = "Events"

    def __init__(self) -> None:
        super().__init__(id="events")
        self._painter = Painter(self)
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._lines: list[Line] = []

    @property
    def count(self) -> int:
        """Events kept."""
        return len(self._events)

    def add(self, events: Iterable[Event]) -> None:
        """Append events; the oldest fall off the top."""
        self._events.extend(events)
        self._wrap()

    def on_resize(self) -> None:
        """Wrap for the new width."""
        self._wrap()

    def _wrap(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        at_end = self.scroll_offset.y >= self.max_scroll_y
        self._lines = [line for event in self._events for line in wrapped_event(event, width)]
        self.virtual_size = Size(width, len(self._lines))
        if at_end:
            self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        index = y + self.scroll_offset.y
        line = self._lines[index] if index < len(self._lines) else ()
        return self._painter.strip(line, self.scrollable_content_region.width)
