"""The last events as lines of a width: a new one costs its own lines, not those of all."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from diffuse_tui.presenter.events import EventFilter, day, wrapped_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.view import Event
    from diffuse_tui.presenter.spans import Line


class Added(NamedTuple):
    """How many events that are shown came, and how many lines fell off the top for them."""

    events: int
    lines_gone: int


class _Shown(NamedTuple):
    """An event that is shown. `line` counts from the first line there ever was."""

    number: int
    event: Event
    line: int


class EventFlow:
    """A bounded list of events, the filter they pass, and their lines.

    Events are known by running numbers, so that a cursor stays where it is when others come.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[tuple[int, Event]] = deque()
        self._count = 0
        self._shown: deque[_Shown] = deque()
        self._gone = 0
        self._width = 0
        self._now = 0.0
        self.filter = EventFilter()
        self.lines: list[Line] = []

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def shown(self) -> int:
        """How many pass the filter."""
        return len(self._shown)

    @property
    def now(self) -> float:
        """When it was laid out last, Unix seconds."""
        return self._now

    def add(self, events: Iterable[Event], now: float) -> Added:
        """Append events; the oldest fall off the top."""
        if day(now) != day(self._now):
            self.lay_out(self._width, now)
        shown, gone = 0, self._gone
        for event in events:
            self._kept.append((self._count, event))
            shown += self._show(self._count, event)
            self._count += 1
            if len(self._kept) > self._most:
                self._drop(self._kept.popleft()[0])
        return Added(shown, self._gone - gone)

    def lay_out(self, width: int, now: float) -> None:
        """Make all lines anew for `width` cells; 0 while that is not known."""
        self._width, self._now = width, now
        self._shown.clear()
        self.lines.clear()
        self._gone = 0
        for number, event in self._kept:
            self._show(number, event)

    def choose(self, chosen: EventFilter) -> None:
        """Show what passes another filter."""
        self.filter = chosen
        self.lay_out(self._width, self._now)

    def _show(self, number: int, event: Event) -> bool:
        if self._width <= 0 or not self.filter.passes(event):
            return False
        self._shown.append(_Shown(number, event, self._gone + len(self.lines)))
        self.lines += wrapped_event(event, self._width, self._now)
        return True

    def _drop(self, number: int) -> None:
        if self._shown and self._shown[0].number == number:
            self._shown.popleft()
            end = self._shown[0].line if self._shown else self._gone + len(self.lines)
            del self.lines[: end - self._gone]
            self._gone = end

    # --- places -----------------------------------------------------------------------------

    def number_at(self, place: int) -> int | None:
        """The number of the event at a place among those shown, 0 the oldest; None if none is."""
        if not self._shown:
            return None
        return self._shown[max(0, min(place, len(self._shown) - 1))].number

    def place_of(self, number: int | None) -> int:
        """Where an event is among those shown, or the first after it; the last for None."""
        last = max(0, len(self._shown) - 1)
        if number is None:
            return last
        numbers = [one.number for one in self._shown]
        return min(last, max(0, bisect_right(numbers, number - 1)))

    def place_at_line(self, line: int) -> int:
        """The place of the event that has this line."""
        return max(0, bisect_right([one.line for one in self._shown], self._gone + line) - 1)

    def lines_of(self, place: int) -> range:
        """The lines of the event at a place."""
        if not self._shown:
            return range(0)
        start = self._shown[place].line - self._gone
        following = place + 1 < len(self._shown)
        end = self._shown[place + 1].line - self._gone if following else len(self.lines)
        return range(start, end)

    def event(self, place: int) -> Event | None:
        """The event at a place; None when none is shown."""
        return self._shown[place].event if self._shown else None
