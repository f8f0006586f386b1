"""The coverage map under the hands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tui_driver import running, screen_text, shown, until
from tui_fakes import Node, network, node
from tui_planned import planned

from diffuse_tui.screens.node import NodeScreen
from diffuse_tui.widgets.coverage_map import CoverageMap

SMALL = [pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (60, 18))]


@pytest.mark.parametrize("size", [(120, 40), *SMALL])
async def test_the_cursors_and_the_way_to_a_node(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(planned(node(1, (0, 15), me=True), node(2, (15, 30)), node(3, (15, 30))))
        await shown(pilot, "● attached")
        await pilot.press("f2")
        drawn = pilot.app.query_one(CoverageMap)
        pilot.app.set_focus(drawn)
        await pilot.press("down", "j", "k")
        await shown(pilot, "*00000001 ▸E")
        await pilot.press("right")
        await shown(pilot, " layer 0: 1 holder (00000001)")
        await pilot.press("end", "h")
        await shown(pilot, " layer 28: 2 holders (00000002, ")
        assert "▼" in screen_text(pilot)
        # Another picture leaves both where they are.
        there.first.show(planned(node(0, (0, 9)), node(1, (0, 15), me=True), node(2, (15, 30))))
        await shown(pilot, " layer 28: 1 holder (00000002)")
        assert "*00000001 ▸E" in screen_text(pilot)
        await pilot.press("G", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert "00000002" in screen_text(pilot)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "▸E" not in screen_text(pilot))
        assert "▼" not in screen_text(pilot)
        await pilot.click(CoverageMap, offset=(16, 3))
        await shown(pilot, "*00000001 ▸E")
        await shown(pilot, " layer ")
        await pilot.click(CoverageMap, offset=(16, 3))
        await until(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))


async def test_many_equal_holders_share_rows_until_told_otherwise() -> None:
    there = Node()
    hosts = [node(n, [(0, 15), (15, 30)][n % 2]) for n in range(100)]
    async with running(there, (80, 24)) as pilot:
        there.first.show(network(*hosts, node(200, (0, 15), me=True)))
        await shown(pilot, "● attached")
        await pilot.press("f2")
        await shown(pilot, "Coverage · 101 holders in 3 rows")
        drawn = pilot.app.query_one(CoverageMap)
        pilot.app.set_focus(drawn)
        await pilot.press("g", "down")
        await shown(pilot, "×50      ▸E")
        await pilot.press("enter")
        await shown(pilot, "▾×50")
        await pilot.press("enter")
        await until(pilot, lambda: "▾" not in screen_text(pilot))
        await pilot.press("u")
        await until(pilot, lambda: "×50" not in screen_text(pilot))
        text = screen_text(pilot)
        assert "layers     0" in text
        assert "holders    ├" in text
        await pilot.press("G")
        await shown(pilot, "00000063 ▸")
        assert "holders    ├" in screen_text(pilot)
        await pilot.press("u")
        await shown(pilot, "in 3 rows")
        await pilot.press("escape")


async def test_nothing_is_drawn_anew_while_nothing_changed() -> None:
    there = Node()
    view = planned(node(1, (0, 15), me=True), node(2, (15, 30)))
    async with running(there) as pilot:
        await shown(pilot, "The network is not known yet.")
        there.first.show(view)
        await shown(pilot, "● attached")
        drawn = pilot.app.query_one(CoverageMap)
        drawn.show_model(view.models[0], view.nodes)
        frame = drawn._frame
        busier = tuple(replace(one, sessions=5, last_seen_s=9.0) for one in view.nodes)
        drawn.show_model(view.models[0], busier)
        assert drawn._frame is frame
        slower = (replace(view.nodes[0], liveness="suspect"), view.nodes[1])
        drawn.show_model(view.models[0], slower)
        assert drawn._frame is not frame
        drawn.show_model(None, ())
        await shown(pilot, "No model on this network yet. F7: host one here")
