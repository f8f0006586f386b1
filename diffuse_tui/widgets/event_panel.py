"""A frame around the events: what of them is shown, and a line to type words in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from diffuse_tui.widgets.event_log import EventLog
from diffuse_tui.widgets.filter_panel import FilterPanel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult

    from diffuse_core.domain.view import Event


class EventPanel(FilterPanel):
    """The log, and a filter line at its foot when there is a filter."""

    BORDER_TITLE = "Events"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter the events", show=False),
        Binding("escape", "clear_filter", "Clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__("event-panel", "words that the events have in them")

    def compose(self) -> ComposeResult:
        """The log; the filter line comes with the first filter."""
        yield EventLog()

    @property
    def rows(self) -> EventLog:
        """The events."""
        return self.query_one(EventLog)

    def add(self, events: Iterable[Event], now: float) -> None:
        """Log events; `now` in Unix seconds tells the day."""
        self.rows.add(events, now)

    def on_event_log_changed(self) -> None:
        """Say what is left out, and what came unseen."""
        log = self.rows
        parts = ["Events"]
        if left := log.flow.filter.told():
            parts.append(left)
        if log.unseen:
            parts.append(f"▼ {log.unseen} new: F follows")
        self.border_title = Content(" · ".join(parts))
        everything = log.flow.filter.everything
        self.border_subtitle = "" if everything else f"{log.flow.shown} of {log.count}"

    def filter_by(self, words: str) -> None:
        """Leave only events with these words, of the levels that are shown."""
        self.rows.choose(self.rows.flow.filter._replace(words=words))
