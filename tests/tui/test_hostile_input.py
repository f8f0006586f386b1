"""Figures that are none, pictures that contradict themselves, keys that come too fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from answer_driver import drawn
from msgspec.structs import replace
from textual.widgets import OptionList
from tui_driver import running, screen_text, shown, until
from tui_fakes import TELEMETRY, Node, model, node, served

from diffuse_core.domain.machine import GpuFigures, HostProgress, Temperature
from diffuse_core.domain.view import FeedUpdate, NetworkView
from diffuse_tui.presenter import figures
from diffuse_tui.presenter.sound import sound
from diffuse_tui.screens.help import HelpScreen
from diffuse_tui.screens.palette import Palette
from diffuse_tui.screens.question import Answer, Question
from diffuse_tui.widgets.code_block import CodeBlock
from diffuse_tui.widgets.turn import MAX_BLOCKS, TurnView

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e308, -1e308, 5e-324, -1.0])
@pytest.mark.parametrize(
    "told",
    [
        figures.size_text,
        figures.rate_text,
        figures.speed_text,
        figures.duration_text,
        figures.age_text,
        figures.round_trip_text,
        figures.figure_text,
    ],
)
def test_no_figure_is_too_odd_or_too_long_to_be_told(
    told: Callable[[float], str], value: float
) -> None:
    text = told(value)
    assert 1 <= len(text) <= 30
    assert "nan" not in text
    assert "inf" not in text


def test_a_share_of_what_is_no_number_is_nothing() -> None:
    pairs = [(NAN, 1.0), (1.0, NAN), (INF, INF), (INF, 1.0), (-INF, 1.0), (1e308, 1e-308)]
    shares = [figures.percent(part, whole) for part, whole in pairs]
    assert shares == [0, 0, 0, 100, 0, 100]


def test_a_picture_that_cannot_be_drawn_is_made_sound() -> None:
    good = node(1, (0, 30))
    fits = model([good], 30)
    odd = [
        replace(fits, layers=layers, replicas=counts)
        for layers, counts in ((0, ()), (-1, ()), (5000, (1,) * 5000), (30, ()), (30, (1,)))
    ]
    view = NetworkView(taken_at=0.0, me=None, nodes=(good, good), models=(*odd, fits))
    mended = sound(view)
    assert mended.nodes == (good,)
    assert mended.models == (fits,)
    assert sound(mended) is mended


async def test_odd_figures_of_this_machine_and_two_keys_at_once_do_no_harm() -> None:
    there = Node()
    odd = replace(
        TELEMETRY,
        cpu_percent=NAN,
        loop_lag_p99_s=INF,
        loop_lag_max_s=NAN,
        gpus=(GpuFigures("gpu", -1, 2**63 - 1, NAN, NAN), GpuFigures("gpu", 0, 0, INF, None)),
        temperatures=(Temperature("chip", NAN),),
        progress=HostProgress("loading", NAN, None, -1, 0),
    )
    nothing = replace(served(), models=(replace(served().models[0], layers=0, replicas=()),))
    async with running(there) as pilot:
        app = pilot.app
        there.first.feed.put_nowait(FeedUpdate(view=nothing, telemetry=odd))
        await shown(pilot, "No model")
        there.first.feed.put_nowait(FeedUpdate(view=served(), telemetry=odd))
        await shown(pilot, "Fragile")
        assert "— % of 2 cores" in screen_text(pilot)
        for screen in (HelpScreen(""), Question("?", "", (Answer("y", "yes"),)), Palette()):
            await app.push_screen(HelpScreen(""))
            await app.push_screen(screen)
            # What two keys do that were pressed before the first one was taken.
            screen.dismiss(None)
            screen.dismiss(None)
            await until(pilot, lambda: len(app.screen_stack) == 2)
            app.pop_screen()
        await pilot.resize_terminal(1, 1)
        await app.push_screen(Question("?", "", (Answer("y", "yes"), Answer("n", "no"))))
        app.screen.query_one(OptionList).highlighted = 1
        await pilot.press("pageup", "pagedown", "escape", "ctrl+p", "pagedown", "pageup")
        assert isinstance(app.screen, Palette)


@pytest.mark.slow
async def test_thousands_of_code_blocks_cost_no_more_than_many() -> None:
    turn = TurnView("q")
    async with drawn(turn) as pilot:
        turn.add("text\n\n```py\nx = 1\n```\n" * 2000 + "the end\n\n```\nopen")
        turn.finish([])
        await until(pilot, lambda: not turn._pieces)
        blocks = list(turn.query(CodeBlock))
        assert len(blocks) == MAX_BLOCKS
        assert len(turn.children) < 3 * MAX_BLOCKS
        assert blocks[0].code == "x = 1"
        rest = blocks[-1].code
        assert rest.startswith("x = 1\n```\ntext\n\n```py\nx = 1\n```\n")
        assert rest.count("x = 1") == 2000 - MAX_BLOCKS + 1
        assert rest.endswith("the end\n\n```\nopen\n```")
