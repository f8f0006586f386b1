from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from answer_driver import drawn
from textual.events import Paste
from textual.widgets import Input, TextArea
from tui_driver import screen_text, shown, until

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import RouteStep, StageTiming, TextDelta
from diffuse_tui.presenter.banner import Link
from diffuse_tui.presenter.columns import Sort
from diffuse_tui.presenter.facts import Facts
from diffuse_tui.presenter.parameters import PRESETS, Params
from diffuse_tui.presenter.spans import plain
from diffuse_tui.presenter.waterfall import (
    MAX_PASSES,
    Times,
    bar,
    cells,
    detail_lines,
    head_lines,
    ordered,
    scale_ms,
    token_rows,
)
from diffuse_tui.screens.parameters import ParametersScreen
from diffuse_tui.screens.waterfall import WaterfallScreen
from diffuse_tui.widgets.line_table import LineTable

if TYPE_CHECKING:
    from textual.pilot import Pilot

FACTS = Facts("Diffuse", None, None, None, Link("connecting"))
ROUTE = (RouteStep("01" * 32, Slice(0, 15)), RouteStep("02" * 32, Slice(15, 30)))
USUAL = (StageTiming(1.0, 0.5, 8.0), StageTiming(1.0, 0.0, 9.5))
SLOW = (StageTiming(40.0, 0.0, 8.0), StageTiming(1.0, 1.0, 10.0))
PASSES = [(StageTiming(0.0, 0.0, 900.0),) * 2, *[USUAL] * 30, SLOW, *[USUAL] * 8]


def test_rows_of_tokens_and_their_scale() -> None:
    rows = token_rows(PASSES, ["a", "b\n"], healed={2})
    assert [row.number for row in rows[:3]] == [1, 2, 3]
    assert rows[1].total_ms == 20.0
    assert scale_ms(rows) == 20.0
    assert scale_ms(()) == 0.0
    assert scale_ms(rows[:1]) == 1800.0
    told = [cell.text for cell in cells(rows[1], 20.0, 40)]
    assert told == ["2", "20.0", "b⏎", f"░░▒{'█' * 16}░░{'█' * 19}"]
    assert cells(rows[2], 20.0, 20)[0].text == "✚3"
    assert cells(rows[31], 20.0, 20)[3].text == "░" * 19 + "›"


def test_times_are_bounded_and_text_without_any_is_of_the_pass_before() -> None:
    times = Times()
    for text, stages in (("lost", ()), ("a", USUAL), ("b", ()), ("c", USUAL)):
        times.add(TextDelta(text, stages=stages))
    assert (times.texts, times.passes) == (["ab", "c"], [USUAL, USUAL])
    for _ in range(MAX_PASSES + 9):
        times.add(TextDelta("d", stages=USUAL))
    times.add(TextDelta("e"))
    assert len(times.passes) == len(times.texts) == MAX_PASSES
    assert times.texts[-1] == "d"


def test_bars_bear_anything() -> None:
    assert bar((), 1.0, 10) == ""
    assert bar(USUAL, 0.0, 10) == ""
    assert bar((StageTiming(-5.0, 1e300, 0.0),), 1.0, 10) == "▒" * 9 + "›"


def test_order_of_tokens() -> None:
    rows = token_rows(PASSES, ())
    assert [row.number for row in ordered(rows, Sort("ms", falling=True))][:2] == [1, 32]
    assert [row.number for row in ordered(rows, Sort("token", falling=True))][:2] == [40, 39]
    assert ordered(rows, None) == list(rows)


def test_what_is_usual_is_told_for_each_stage() -> None:
    lines = [plain(line) for line in head_lines(PASSES, ROUTE)]
    assert lines == [
        "39 passes · ms, usual/95 % · ░ wire ▒ queue █ compute",
        "01010101 0:15     50%  wire 1.00/1.00 · queue 0.50/0.50 · compute 8.00/8.00",
        "02020202 15:30    50%  wire 1.00/1.00 · queue 0.00/0.00 · compute 9.50/9.50",
    ]
    assert "ask something" in plain(head_lines([], ROUTE)[0])
    assert plain(head_lines([USUAL * 6], ROUTE * 6)[-1]) == "and 4 more stages"


def test_all_figures_of_one_pass() -> None:
    rows = token_rows([USUAL, USUAL], ["x\x1b", "y"], healed=[1])
    lines = [plain(line) for line in detail_lines(rows[1], ROUTE)]
    assert lines[0] == "token 2 y 20.0 ms · ✚ a lost stage was replaced before it"
    assert lines[2] == "  02020202 15:30   wire 1.00 · queue 0.00 · compute 9.50"
    assert plain(detail_lines(rows[0], ROUTE)[0]) == "token 1 x␛ 20.0 ms · the prompt's pass"
    assert plain(detail_lines(rows[0], ())[1]).startswith("  stage 1 ")


async def opened(pilot: Pilot[None], screen: object) -> list[object]:
    found: list[object] = []
    pilot.app.push_screen(screen, found.append)
    await until(pilot, lambda: pilot.app.screen is screen and screen.focused is not None)
    return found


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_the_waterfall_is_walked_and_sorted(size: tuple[int, int]) -> None:
    times = Times()
    times.passes, times.texts, times.route = list(PASSES), [f"t{n}" for n in range(60)], ROUTE
    async with drawn(size=size) as pilot:
        screen = WaterfallScreen(FACTS, times)
        await opened(pilot, screen)
        await shown(pilot, "39 passes")
        await shown(pilot, "the prompt's pass")
        assert "░" in screen_text(pilot)
        await pilot.press("j")
        await shown(pilot, "token 2 t1 20.0 ms")
        await pilot.press("s", "j")
        await shown(pilot, "token 32 t31 60.0 ms")
        await pilot.press("s", "G")
        await shown(pilot, "token 40 t39")
        times.passes.append(USUAL)
        screen.show(FACTS)
        await shown(pilot, "40 passes")
        assert len(screen.query_one(LineTable).keys) == 41
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not screen)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_settings_are_checked_and_applied(size: tuple[int, int]) -> None:
    async with drawn(size=size) as pilot:
        before = Params(top_k=5, stop=("END",))
        screen = ParametersScreen(FACTS, before, "Be brief.")
        found = await opened(pilot, screen)
        await shown(pilot, "Temperature")
        assert "0 to 100" in screen_text(pilot)
        field = screen.query_one("#set-temperature", Input)
        assert screen.focused is field
        # What is there is selected: what is typed takes its place.
        await pilot.press("1", "0", "1")
        assert field.value == "101"
        await shown(pilot, "✖ 0 to 100")
        await pilot.press("down")
        assert screen.focused is screen.query_one("#set-top-k")
        await pilot.press("enter")
        assert screen.focused is field
        assert not found
        field.value = "0.5"
        screen.query_one("#set-seed", Input).value = "7"
        screen.query_one(TextArea).text = "Be long.\nAnd kind. "
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(found))
        params = Params(temperature=0.5, top_k=5, stop=("END",), seed=7)
        assert found == [(params, "Be long.\nAnd kind.")]


async def test_what_came_from_a_file_steers_no_terminal() -> None:
    async with drawn() as pilot:
        before = Params(stop=("\x1b[2J",))
        screen = ParametersScreen(FACTS, before, "Be\x1b[31m brief.")
        found = await opened(pilot, screen)
        await shown(pilot, "Be␛[31m brief.")
        assert screen.query_one("#set-stop", Input).value == r"\u001b[2J"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(found))
        # Left alone it stays what it is.
        assert found == [(before, "Be\x1b[31m brief.")]
        screen = ParametersScreen(FACTS, before, "")
        found = await opened(pilot, screen)
        screen.query_one(TextArea).focus()
        screen.query_one(TextArea).post_message(Paste("one\x9b2J\r\ntwo"))
        await pilot.pause()
        assert screen.query_one(TextArea).text == "one\ufffd2J\ntwo"


async def test_presets_fill_in_and_escape_leaves_all_as_it_was() -> None:
    async with drawn() as pilot:
        screen = ParametersScreen(FACTS, Params(seed=3), "")
        found = await opened(pilot, screen)
        assert screen.query_one("#preset-precise").has_class("chosen")
        await pilot.click("#preset-creative")
        await until(pilot, lambda: screen.query_one("#preset-creative").has_class("chosen"))
        assert screen.query_one("#set-temperature", Input).value == "1"
        assert screen.query_one("#set-seed", Input).value == "3"
        screen.query_one(TextArea).text = "x" * 100_001
        await until(pilot, lambda: screen.query_one("#told-system").has_class("wrong"))
        await pilot.press("ctrl+s")
        assert screen.focused is screen.query_one(TextArea)
        await pilot.press("escape")
        await until(pilot, lambda: bool(found))
        assert found == [None]
        assert set(PRESETS) == {"precise", "balanced", "creative"}
