"""The page of this machine: its figures, and the events with cursor, filter and levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from textual.widgets import Input
from tui_driver import NARROW, WIDE, running, screen_text, shown, until
from tui_fakes import TELEMETRY, Node, served

from diffuse_core.domain.machine import GpuFigures, HostProgress
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Event, FeedUpdate
from diffuse_tui.widgets.event_log import EventLog
from diffuse_tui.widgets.event_panel import EventPanel
from diffuse_tui.widgets.machine_panel import MachinePanel

if TYPE_CHECKING:
    from textual.pilot import Pilot

MIB = 2**20


def events(*numbers: int, level: str = "info") -> list[Event]:
    return [Event(0.0, level, f"event {number} [b]x") for number in numbers]


def log_of(pilot: Pilot[None]) -> EventLog:
    return pilot.app.query_one(EventLog)


def under_cursor(pilot: Pilot[None]) -> str:
    return next(line for line in screen_text(pilot).splitlines() if "▸" in line)


async def test_scrolled_up_it_counts_what_is_new_and_goes_on_at_its_end() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        there.first.show(served(), *events(*range(40)))
        await pilot.press("f4")
        await shown(pilot, "event 39 [b]x")
        log = log_of(pilot)
        assert log.follows
        await pilot.press("k", "k")
        assert "event 37" in under_cursor(pilot)
        there.first.show(served(), *events(40, 41))
        await shown(pilot, "▼ 2 new: F follows")
        assert "event 37" in under_cursor(pilot)
        await pilot.press("g")
        assert "event 0 " in under_cursor(pilot)
        assert log.scroll_offset.y == 0
        await pilot.press("j", "ctrl+d")
        assert log.scroll_offset.y == 0 or "▸" in screen_text(pilot)
        await pilot.press("F")
        await shown(pilot, "event 41")
        assert log.follows
        assert "new" not in screen_text(pilot).split("Events")[1].splitlines()[0]
        # With the wheel, too.
        log.scroll_to(y=0, animate=False)
        await until(pilot, lambda: not log.follows)
        there.first.show(served(), *events(42))
        await shown(pilot, "▼ 1 new")
        log.scroll_end(animate=False)
        await until(pilot, lambda: log.follows)
        there.first.show(served(), *events(43))
        await shown(pilot, "event 43")
        await pilot.click(EventLog, offset=(20, 1))
        await until(pilot, lambda: not log.follows)


async def test_levels_and_copying() -> None:
    there = Node()
    async with running(there, WIDE) as pilot:
        there.first.show(served())
        await pilot.press("f4")
        await shown(pilot, "Nothing has happened yet.")
        warning, error = events(7, level="warning"), events(8, level="error")
        there.first.show(served(), *events(*range(5)), *warning, *error)
        await shown(pilot, "event 8")
        log = log_of(pilot)
        await pilot.press("l", "l")
        await shown(pilot, "Events · warnings and errors")
        assert "event 4" not in screen_text(pilot)
        await shown(pilot, "2 of 7")
        await pilot.press("y")
        assert pilot.app.clipboard.endswith("✖ event 8 [b]x")
        await pilot.press("k", "y")
        assert pilot.app.clipboard.endswith("▲ event 7 [b]x")
        await pilot.press("l", "l")
        assert log.flow.filter.everything


async def test_words_leave_only_some_events() -> None:
    there = Node()
    async with running(there, WIDE) as pilot:
        there.first.show(served(), *events(*range(5)))
        await pilot.press("f4")
        await shown(pilot, "event 4")
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(pilot.app.focused, Input))
        await pilot.press("3")
        await shown(pilot, "Events · /3")
        await shown(pilot, "1 of 5")
        await pilot.press("x")
        await shown(pilot, "no event passes")
        await pilot.press("enter")
        log = log_of(pilot)
        await until(pilot, lambda: pilot.app.focused is log)
        await pilot.press("escape")
        await shown(pilot, "event 4")
        assert log.flow.filter.everything
        assert not pilot.app.query(Input)
        assert pilot.app.focused is log


async def test_this_machine_tells_more_where_there_is_more_room() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        part = Slice(12, 18)
        telemetry = msgspec.structs.replace(
            TELEMETRY,
            gpus=(GpuFigures("NVIDIA H200", 140 * MIB, 7 * MIB, 63.0, 41.0),),
            model="m",
            slice=part,
            progress=HostProgress("downloading", 0.5, part, 5 * MIB, 10 * MIB),
        )
        for second in range(3):
            view = msgspec.structs.replace(served(), taken_at=100.0 + second)
            there.first.feed.put_nowait(FeedUpdate(view=view, telemetry=telemetry))
        await pilot.press("f4")
        await shown(pilot, "fetches ━━━━━━────── 50 % · 5.0 MiB of 10 MiB")
        assert "63 % · 7.0 MiB of 140 MiB · 41 °C · NVIDIA H200" in screen_text(pilot)
        panel, log = pilot.app.query_one(MachinePanel), pilot.app.query_one(EventPanel)
        assert panel.size.height >= 7
        assert log.size.height >= 7
        pilot.app.screen.maximize(panel)
        await shown(pilot, "most 10 % in 5 min")
        pilot.app.screen.minimize()
        await until(pilot, lambda: "in 5 min" not in screen_text(pilot))
