"""A frame around the events: what of them is shown, and a line to type words in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from diffuse_tui.widgets.event_log import EventLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.widgets import Input

    from diffuse_core.domain.view import Event
    from diffuse_tui.widgets.filter_line import FilterLine


class EventPanel(Vertical):
    """The log, and a filter line at its foot when there is a filter."""

    BORDER_TITLE = "Events"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter the events", show=False),
        Binding("escape", "clear_filter", "Clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="event-panel")
        self._line: FilterLine | None = None

    def compose(self) -> ComposeResult:
        """The log; the filter line comes with the first filter."""
        yield EventLog()

    @property
    def log_view(self) -> EventLog:
        """The events."""
        return self.query_one(EventLog)

    def add(self, events: Iterable[Event], now: float) -> None:
        """Log events; `now` in Unix seconds tells the day."""
        self.log_view.add(events, now)

    def on_event_log_changed(self) -> None:
        """Say what is left out, and what came unseen."""
        log = self.log_view
        parts = ["Events"]
        if left := log.flow.filter.told():
            parts.append(left)
        if log.unseen:
            parts.append(f"▼ {log.unseen} new: F follows")
        self.border_title = Content(" · ".join(parts))
        everything = log.flow.filter.everything
        self.border_subtitle = "" if everything else f"{log.flow.shown} of {log.count}"

    async def action_filter(self) -> None:
        """Type words that leave only some events."""
        from diffuse_tui.widgets.filter_line import FilterLine

        if self._line is None:
            self._line = FilterLine("words that the events have in them")
            await self.mount(self._line)
        self._line.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc is the screen's when there is no filter."""
        del parameters
        return action != "clear_filter" or self._line is not None

    def action_clear_filter(self) -> None:
        """Show all events again, of the levels that are shown."""
        if self._line is not None:
            self._line.action_clear()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Every key filters."""
        message.stop()
        log = self.log_view
        log.choose(log.flow.filter._replace(words=message.value))

    async def on_filter_line_left(self, message: FilterLine.Left) -> None:
        """Back to the events."""
        message.stop()
        self.screen.set_focus(self.log_view)
        if message.cleared and self._line is not None:
            line, self._line = self._line, None
            self.log_view.choose(self.log_view.flow.filter._replace(words=""))
            await line.remove()
