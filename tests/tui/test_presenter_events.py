from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Event
from diffuse_tui.presenter import event_flow
from diffuse_tui.presenter.event_flow import Added, EventFlow
from diffuse_tui.presenter.events import (
    SHOWN,
    EventFilter,
    event_line,
    event_text,
    wrapped_event,
)
from diffuse_tui.presenter.spans import plain

if TYPE_CHECKING:
    import pytest

NOON = datetime(2026, 3, 12, 12, 0, 5).timestamp()  # noqa: DTZ001 - local time is what is shown
DAY = 86400.0


def test_events_have_time_shape_and_words_kept_whole() -> None:
    assert plain(event_line(Event(NOON, "warning", "a\x1bb"), NOON)) == " 12:00:05 ▲ a␛b"
    assert plain(event_line(Event(1e300, "info", "x"), NOON)) == " --:--:-- · x"
    lines = wrapped_event(Event(NOON, "error", "one two three four"), 22, NOON)
    assert [plain(line)[12:] for line in lines] == ["one two", "three four"]
    assert len(wrapped_event(Event(0.0, "info", ""), 5, NOON)) == 1
    assert event_text(Event(NOON, "good", "a\nb"), NOON) == "12:00:05 ✔ a b"


def test_what_was_not_today_has_its_day() -> None:
    (line,) = wrapped_event(Event(NOON - DAY, "good", "ready"), 60, NOON)
    assert plain(line) == " 11 Mar 12:00 ✔ ready"
    lines = wrapped_event(Event(NOON - DAY, "good", "one two three"), 24, NOON)
    assert [plain(one)[16:] for one in lines] == ["one two", "three"]


EVENTS = [
    Event(NOON, level, f"{level} of Node {number}")
    for number, level in enumerate(("info", "good", "warning", "error"))
]


def test_levels_go_round_and_words_narrow() -> None:
    chosen, left = EventFilter(), []
    for _ in SHOWN:
        left.append(sum(map(chosen.passes, EVENTS)))
        chosen = chosen.next_level()
    assert left == [4, 3, 2, 1]
    assert chosen == EventFilter()
    assert chosen.everything
    assert chosen.told() == ""
    words = EventFilter(words=" NODE  warn ")
    assert [event.level for event in EVENTS if words.passes(event)] == ["warning"]
    assert not words.everything
    assert words.next_level().told() == "good and bad news · /NODE  warn"
    assert "\x1b" not in EventFilter(words="\x1b").told()


def texts(flow: EventFlow) -> list[str]:
    return [plain(line)[12:] for line in flow.lines]


def numbered(*numbers: int, level: str = "info") -> list[Event]:
    return [Event(NOON, level, f"event {number}") for number in numbers]


def test_a_new_event_costs_its_own_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = []

    def count(event: Event, width: int, now: float) -> tuple:
        wrapped.append(event)
        return wrapped_event(event, width, now)

    monkeypatch.setattr(event_flow, "wrapped_event", count)
    flow = EventFlow(500)
    flow.lay_out(40, NOON)
    flow.add(numbered(*range(700)), NOON)
    assert len(flow) == 500
    assert texts(flow)[0] == "event 200"
    wrapped.clear()
    assert flow.add(numbered(700), NOON) == Added(1, 1)
    assert len(wrapped) == 1
    assert texts(flow) == [f"event {number}" for number in range(201, 701)]
    # The day changed: now every one of them has its day.
    flow.add(numbered(701), NOON + DAY)
    assert len(wrapped) == 502
    assert plain(flow.lines[0]).startswith(" 12 Mar 12:00")


def test_nothing_is_laid_out_before_there_is_room() -> None:
    flow = EventFlow(5)
    assert flow.add(numbered(1), NOON) == Added(0, 0)
    assert (len(flow), flow.shown, flow.lines) == (1, 0, [])
    assert flow.event(0) is None
    assert flow.number_at(0) is None
    assert flow.place_of(None) == flow.place_at_line(3) == 0
    assert flow.lines_of(0) == range(0)
    flow.lay_out(40, NOON)
    assert texts(flow) == ["event 1"]


def test_lines_fall_off_with_their_event() -> None:
    flow = EventFlow(2)
    flow.lay_out(24, NOON)
    long = Event(NOON, "info", "one two three four five")
    flow.add([long, *numbered(1)], NOON)
    assert texts(flow) == ["one two", "three four", "five", "event 1"]
    assert flow.lines_of(0) == range(3)
    assert flow.lines_of(1) == range(3, 4)
    assert [flow.place_at_line(line) for line in range(4)] == [0, 0, 0, 1]
    assert flow.add(numbered(2), NOON) == Added(1, 3)
    assert texts(flow) == ["event 1", "event 2"]
    assert flow.lines_of(0) == range(1)
    # Of what is not shown no line falls off.
    flow.choose(EventFilter(words="2"))
    assert flow.add(numbered(3), NOON) == Added(0, 0)
    assert flow.add(numbered(4), NOON) == Added(0, 1)
    assert (flow.lines, flow.shown, len(flow)) == ([], 0, 2)


def test_places_stay_with_their_events() -> None:
    flow = EventFlow(4)
    flow.lay_out(40, NOON)
    flow.add(numbered(0, 1, 2, 3), NOON)
    number = flow.number_at(2)
    assert flow.event(flow.place_of(number)).text == "event 2"
    flow.add(numbered(4), NOON)
    assert flow.event(flow.place_of(number)).text == "event 2"
    # One that is left out or gone: what comes after it.
    flow.choose(EventFilter(words="3"))
    assert flow.event(flow.place_of(number)).text == "event 3"
    flow.choose(EventFilter())
    flow.add(numbered(5, 6, 7), NOON)
    assert flow.event(flow.place_of(number)).text == "event 4"
    assert flow.event(flow.place_of(None)).text == "event 7"
    assert flow.number_at(-5) == flow.number_at(0)
    assert flow.number_at(99) == flow.number_at(3)
