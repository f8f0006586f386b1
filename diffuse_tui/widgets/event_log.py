"""The last events, newest at the bottom, wrapped to the width there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from diffuse_tui.presenter.event_flow import EventFlow
from diffuse_tui.presenter.events import event_text
from diffuse_tui.presenter.spans import Span, plain
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.focus import PageTarget
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.events import Click
    from textual.selection import Selection

    from diffuse_core.domain.view import Event
    from diffuse_tui.presenter.events import EventFilter
    from diffuse_tui.presenter.spans import Line

MAX_EVENTS = 500

_NOTHING = (Span(" Nothing has happened yet.", "dim"),)
_NO_MATCH = (Span(" no event passes: l shows more levels, Esc clears the words", "warning"),)


class EventLog(PageTarget, ScrollView, can_focus=True):
    """A bounded log with a cursor, which follows its end until one goes up.

    The panel around it has the frame, the filter and what is said of both.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"event-log--cursor"}
    DEFAULT_CSS = """
    EventLog { overflow-x: hidden; scrollbar-gutter: stable; scrollbar-size-vertical: 1; }
    EventLog > .event-log--cursor {
        background: $block-cursor-background; color: $block-cursor-foreground;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Event before", show=False),
        Binding("down,j", "step(1)", "Next event", show=False),
        Binding("pageup", "leap(-1.0)", "Page up", show=False),
        Binding("pagedown", "leap(1.0)", "Page down", show=False),
        Binding("ctrl+u", "leap(-0.5)", "Half a page up", show=False),
        Binding("ctrl+d", "leap(0.5)", "Half a page down", show=False),
        Binding("home,g", "first", "First event", show=False),
        Binding("end,G,F", "follow", "Follow the events", show=False),
        Binding("l", "level", "Levels of events", show=False),
        Binding("y", "copy_event", "Copy the event", show=False),
    ]

    class Changed(Message):
        """What is shown, or whether it follows, is another than before."""

    def __init__(self) -> None:
        super().__init__(id="events")
        self._painter = Painter(self)
        self.flow = EventFlow(MAX_EVENTS)
        self._cursor: int | None = None
        self.follows = True
        self.unseen = 0
        """Events that came below while it does not follow."""

    @property
    def count(self) -> int:
        """Events kept."""
        return len(self.flow)

    def add(self, events: Iterable[Event], now: float) -> None:
        """Append events; the oldest fall off the top. `now` in Unix seconds tells the day."""
        added = self.flow.add(events, now)
        top = max(0, int(self.scroll_offset.y) - added.lines_gone)
        if not self.follows:
            self.unseen += added.events
        self._grown(top)

    def choose(self, chosen: EventFilter) -> None:
        """Show other events."""
        self.flow.choose(chosen)
        if self.follows:
            self._grown(0)
        else:
            self._grown(int(self.scroll_offset.y))
            self._bring_to_sight()

    def on_resize(self) -> None:
        """Wrap for the new width."""
        width = self.scrollable_content_region.width
        if width > 0:
            self.flow.lay_out(width, self.flow.now)
            self._grown(int(self.scroll_offset.y))

    def _grown(self, top: int) -> None:
        """There are other lines: stay at the end, or at `top`."""
        size = Size(self.scrollable_content_region.width, max(1, len(self.flow.lines)))
        follows = self.follows
        if size != self.virtual_size:
            self.virtual_size = size
        if follows:
            self._cursor = None
            self.scroll_end(animate=False, immediate=True, force=True)
        elif top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._set_following(follows)
        self.post_message(self.Changed())
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolled up it stays there; at the end it follows."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._set_following(round(new_value) >= self.max_scroll_y)

    def _set_following(self, follows: bool) -> None:
        if follows and not self.follows:
            self._cursor = None
        elif self.follows and not follows and self._cursor is None:
            self._cursor = self.flow.number_at(self.flow.shown - 1)
        if follows != self.follows:
            self.follows = follows
            self.post_message(self.Changed())
        if follows:
            self.unseen = 0

    # --- the cursor -------------------------------------------------------------------------

    @property
    def _place(self) -> int:
        return self.flow.place_of(self._cursor)

    def _move(self, place: int) -> None:
        last = self.flow.shown - 1
        if last < 0:
            return
        if place >= last:
            self.action_follow()
            return
        self._set_following(follows=False)
        self._cursor = self.flow.number_at(max(0, place))
        self._bring_to_sight()
        self.refresh()

    def _bring_to_sight(self) -> None:
        lines, height = self.flow.lines_of(self._place), self.scrollable_content_region.height
        if not lines:
            return
        top = min(max(int(self.scroll_offset.y), lines.stop - height), lines.start)
        cursor = self._cursor
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._set_following(follows=False)
        self._cursor = cursor

    def action_step(self, events: int) -> None:
        """Up or down by events."""
        self._move(self._place + events)

    def action_leap(self, heights: float) -> None:
        """Up or down by a part of what is seen at once."""
        rows = max(1, int(abs(heights) * self.scrollable_content_region.height))
        line = self.flow.lines_of(self._place).start + (rows if heights > 0 else -rows)
        place = self.flow.place_at_line(line)
        step = 1 if heights > 0 else -1
        self._move(place if place != self._place else self._place + step)

    def action_first(self) -> None:
        """To the oldest event."""
        self._move(0)
        self.scroll_home(animate=False, immediate=True, force=True)

    def action_follow(self) -> None:
        """To the newest event, and to those that come."""
        self._set_following(follows=True)
        self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def action_level(self) -> None:
        """Show fewer levels; after the fewest, all again."""
        self.choose(self.flow.filter.next_level())

    def action_copy_event(self) -> None:
        """Hand what the mouse has selected, else the event, to the terminal's clipboard."""
        selected = self.screen.get_selected_text()
        event = self.flow.event(self._place)
        text = selected or (event_text(event, self.flow.now) if event else "")
        if text:
            copy(self, text, "Selection" if selected else "The event")

    def on_click(self, event: Click) -> None:
        """Put the cursor on an event."""
        at = event.get_content_offset(self)
        if at is not None and self.flow.shown and self.text_selection is None:
            self._move(self.flow.place_at_line(at.y + int(self.scroll_offset.y)))

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that the mouse was drawn over."""
        text = "\n".join(plain(line) for line in self.flow.lines)
        return selection.extract(text), "\n"

    # --- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        width = self.scrollable_content_region.width
        index = y + int(self.scroll_offset.y)
        if index >= len(self.flow.lines):
            return self._painter.strip(self._instead(index), width)
        line = self.flow.lines[index]
        under = self.flow.lines_of(self._place) if self.has_focus else range(0)
        if index in under:
            strip = self._under_cursor(line, width, "▸" if index == under.start else " ")
        else:
            strip = self._painter.strip(line, width)
        selection = self.text_selection
        span = selection.get_span(index) if selection is not None else None
        if span is not None:
            start, end = span[0], width if span[1] == -1 else span[1]
            style = self.screen.get_component_rich_style("screen--selection")
            before, chosen, *after = strip.divide([start, end, width])
            over = [Segment(text, own + style if own else style) for text, own, _ in chosen]
            strip = Strip.join([before, Strip(over), *after])
        return strip.apply_offsets(0, index)

    def _instead(self, index: int) -> Line:
        if index or self.flow.lines:
            return ()
        return _NO_MATCH if len(self.flow) else _NOTHING

    def _under_cursor(self, line: Line, width: int, mark: str) -> Strip:
        style = self.get_component_rich_style("event-log--cursor")
        first, *rest = line
        marked = Span(mark + first.text[1:], first.tone)
        segments = [
            Segment(span.text, style + self._painter.own_style(span.tone))
            for span in (marked, *rest)
        ]
        return Strip(segments).adjust_cell_length(width, style)
