"""The flows of the what-if screen, at every size that the app promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tui_driver import running, screen_text, shown, until
from tui_fakes import Node, node
from tui_planned import MIB, planned, thirds

from diffuse_tui.screens.node import NodeScreen
from diffuse_tui.screens.what_if import SizeLine, WhatIfScreen
from diffuse_tui.widgets.line_table import LineTable
from diffuse_tui.widgets.replica_table import ReplicaTable

if TYPE_CHECKING:
    from textual.pilot import Pilot

SIZES = [(80, 24), *(pytest.param(size, marks=pytest.mark.slow) for size in ((120, 40), (60, 18)))]

FIRST_KEYS = ["F1", "Help", "F5", "Model"]


async def opened(pilot: Pilot[None], there: Node) -> WhatIfScreen:
    there.first.show(thirds(node(9, me=True)))
    await shown(pilot, "● attached")
    await pilot.press("f6")
    await until(pilot, lambda: isinstance(pilot.app.screen, WhatIfScreen))
    await shown(pilot, "if it goes:")
    screen = pilot.app.screen
    assert isinstance(screen, WhatIfScreen)
    return screen


def words(pilot: Pilot[None]) -> str:
    return " ".join(screen_text(pilot).split())


@pytest.mark.parametrize("size", SIZES)
async def test_hosts_that_go_and_hosts_that_come(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        screen = await opened(pilot, there)
        assert "Diffuse › What if" in screen_text(pilot)
        await pilot.press("j")
        await shown(pilot, "if it goes: gap 12:18, model Incomplete")
        assert "gap!" in screen_text(pilot).replace(" ", "")
        await pilot.press("y", "space", "j", "space")
        assert pilot.app.clipboard.startswith("if it goes: gap 12:18, model Incomplete\n")
        await shown(pilot, "if both go: gap 12:18, model Incomplete")
        assert screen_text(pilot).count("[x]") == 2
        # What is marked and is gone by itself is not marked any more.
        there.first.show(thirds(node(9, me=True), node(5, (0, 30), capacity=4000 * MIB)))
        await shown(pilot, "if both go: layers 12:18 have one holder, model Fragile")
        there.first.show(thirds(node(9, me=True)))
        await shown(pilot, "if both go: gap 12:18")
        line = screen.query_one(SizeLine)
        await pilot.press("x", "a")
        await shown(pilot, "it would take layers 1:18 of 30; Fragile -> Robust")
        assert (line.has_focus, line.value) == (True, "2 GB")
        # The line of keys tells of none that would be text now.
        await until(pilot, lambda: screen_text(pilot).split("\n")[-1].split()[:4] == FIRST_KEYS)
        line.value = "500 MB"
        await shown(pilot, "it would take layers 12:16 of 30; stays Fragile")
        await pilot.press("up", "up", "down")
        assert line.value == "2 x 500 MB"
        await shown(pilot, "2 hosts would take 12:16 and 14:18; Fragile -> Robust")
        line.value = "a lot"
        await shown(pilot, "✖ 'a lot' is no size")
        line.value = ""
        await shown(pilot, "type how much memory a host has")
        await pilot.press("escape", "plus")
        assert line.value == "2 x 2 GB"
        await pilot.press("minus")
        await shown(pilot, "it would take layers 1:18 of 30")
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not screen)


async def test_tab_leads_from_each_question_to_its_answer() -> None:
    there = Node()
    async with running(there, (60, 18)) as pilot:
        screen = await opened(pilot, there)
        line, box = screen.query_one(SizeLine), screen.query_one("#if-answer")
        await pilot.press("tab")
        assert box.has_focus
        await shown(pilot, "if it goes: ")
        await pilot.press("tab")
        assert line.has_focus
        await shown(pilot, "type how much memory a host has")
        await pilot.press("tab")
        assert box.has_focus
        await pilot.press("shift+tab")
        assert line.has_focus
        await pilot.press("shift+tab")
        assert isinstance(screen.focused, LineTable)
        await shown(pilot, "if it goes: ")


async def test_from_the_screen_of_a_node_that_holds_another_model() -> None:
    there = Node()
    other = node(7, (0, 30), model="other", fingerprint="cd" * 32)
    base = thirds(node(9, me=True), other)
    second = replace(base.models[0], id="other", fingerprint="cd" * 32, replicas=(1,) * 30)
    async with running(there) as pilot:
        there.first.show(replace(base, models=(*base.models, second)))
        await shown(pilot, "● attached")
        pilot.app.query_one(ReplicaTable).move_to(other.node)
        await pilot.press("f2", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        await pilot.press("w")
        await shown(pilot, "if it goes: gap 0:30, model Incomplete")
        assert "If it goes · other" in screen_text(pilot)
        assert "no other host can be spared" in words(pilot)
        # The model can be changed, and goes back to that of the node no more.
        await pilot.press("m")
        await shown(pilot, "Models on this network · 2")
        await pilot.press("g", "enter")
        await shown(pilot, "If it goes · tiny-llama")
        await shown(pilot, "if it goes: every layer that has a holder keeps one")


async def test_a_long_list_is_filtered_and_the_answer_follows_the_network() -> None:
    there = Node()
    hosts = [node(n, (0, 30)) for n in range(1, 200)]
    async with running(there, (80, 24)) as pilot:
        there.first.show(planned(*hosts, node(500, (10, 20))))
        await shown(pilot, "● attached")
        await pilot.press("f6", "slash", *"000001f")
        await shown(pilot, "if it goes: every layer keeps 199 holders or more")
        await pilot.press("escape")
        screen = pilot.app.screen
        table = screen.query_one("#if-nodes", LineTable)
        await until(pilot, lambda: len(table.keys) == 200 and table.has_focus)
        there.first.show(planned(hosts[0]))
        await shown(pilot, "if it goes: gap 0:30, model Incomplete")
        there.first.show(planned(hosts[0]).__class__(taken_at=0.0, me=None, nodes=(), models=()))
        await shown(pilot, "no model on this network yet")
        await pilot.press("a")
        await shown(pilot, "no model on this network yet")
