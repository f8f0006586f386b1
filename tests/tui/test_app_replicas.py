"""The replica table and a node's screen in the running app."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tui_driver import NARROW, at_once, ready, running, screen_text, shown, until
from tui_fakes import Node, network, node, served

from diffuse_tui.presenter.columns import Sort
from diffuse_tui.screens.node import NodeScreen
from diffuse_tui.widgets.replica_table import ReplicaPanel, ReplicaTable

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from diffuse_core.domain.view import NetworkView


def hosts(count: int, **more: object) -> NetworkView:
    return network(
        *(
            node(n, (n % 20, n % 20 + 10), **({"tokens_per_s": float(n)} | more))
            for n in range(count)
        )
    )


async def opened(pilot: Pilot[None], there: Node, view: NetworkView) -> ReplicaTable:
    """The table with a row for each node of `view`, focused."""
    there.first.show(view)
    table = pilot.app.query_one(ReplicaTable)
    await until(pilot, lambda: len(table.keys) == len(view.nodes))
    await pilot.press("f2")
    await until(pilot, lambda: table.has_focus and table.size.height > 0)
    return table


def number(key: str | None) -> int:
    return int((key or "")[:8], 16)


async def test_the_table_is_moved_in_by_keys_and_wheel() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        table = await opened(pilot, there, hosts(100))
        seen = table._height
        assert table.cursor_row == 0
        await pilot.press("j", "down", "k")
        assert table.cursor_row == 1
        await pilot.press("ctrl+d")
        assert table.cursor_row == 1 + seen // 2
        await pilot.press("ctrl+u", "pagedown")
        assert table.cursor_row == 1 + seen
        await pilot.press("G")
        assert table.cursor_row == 99
        assert table.scroll_offset.y == 100 - seen
        await shown(pilot, f"▸{table.keys[99][:8]}")
        await pilot.press("pageup")
        assert table.cursor_row == 99 - seen
        await pilot.press("g")
        assert (table.cursor_row, table.scroll_offset.y) == (0, 0)
        await pilot.press("end", "home")
        assert table.cursor_row == 0
        table._on_mouse_scroll_down(_Wheel())
        await until(pilot, lambda: table.scroll_offset.y > 0)
        assert table.cursor_row == 0, "the wheel leaves the cursor where it is"


class _Wheel:
    ctrl = shift = False

    def stop(self) -> None: ...
    def prevent_default(self) -> None: ...


async def test_a_click_points_a_second_one_opens_and_a_heading_sorts() -> None:
    there = Node()
    async with running(there) as pilot:
        table = await opened(pilot, there, hosts(9))
        before = table.keys
        await pilot.click(ReplicaTable, offset=(4, 3))
        await until(pilot, lambda: table.cursor_key == before[2])
        await pilot.click(ReplicaTable, offset=(4, 3))
        await until(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        x = screen_text(pilot).split("\n")[table.region.y].index("tok/s") - table.region.x
        await pilot.click(ReplicaTable, offset=(x, 0))
        await until(pilot, lambda: table.sort == Sort("tok/s", falling=True))
        await until(pilot, lambda: number(table.keys[0]) == 8)
        assert "tok/s▼" in screen_text(pilot)
        assert table.cursor_key == before[2], "the cursor stays on its node"
        await pilot.click(ReplicaTable, offset=(x, 0))
        await until(pilot, lambda: number(table.keys[0]) == 1)
        await pilot.click(ReplicaTable, offset=(x, 0))
        await until(pilot, lambda: table.sort is None and table.keys == before)


async def test_sorting_by_keys_survives_updates() -> None:
    there = Node()
    async with running(there) as pilot:
        table = await opened(pilot, there, hosts(9))
        await pilot.press("5")
        await until(pilot, lambda: number(table.keys[0]) == 8)
        await pilot.press("S")
        await until(pilot, lambda: number(table.keys[0]) == 1)
        there.first.show(hosts(9, tokens_per_s=3.0))
        await shown(pilot, "3.0")
        there.first.show(network(*(node(n, (0, 30), tokens_per_s=9.0 - n) for n in range(9))))
        await until(pilot, lambda: number(table.keys[0]) == 8)
        assert table.sort == Sort("tok/s", falling=False)
        await pilot.press("less_than_sign")
        await until(pilot, lambda: table.sort == Sort("load", falling=True))
        await pilot.press("greater_than_sign", "greater_than_sign")
        await until(pilot, lambda: table.sort == Sort("KV free", falling=True))


async def test_the_filter_leaves_what_all_words_match_until_escape() -> None:
    there = Node()
    async with running(there) as pilot:
        table = await opened(pilot, there, hosts(40))
        await pilot.press("slash")
        await pilot.press(*"0:1", "0")
        await until(pilot, lambda: len(table.keys) == 2)
        await shown(pilot, "2 of 40 · Esc shows all")
        there.first.show(hosts(60))
        await shown(pilot, "3 of 60 · Esc shows all")
        await pilot.press("space", *"qq")
        await shown(pilot, "No node matches these words; Esc clears them")
        assert pilot.app.is_running, "letters are text here"
        await pilot.press("backspace", "backspace", "enter")
        await until(pilot, lambda: table.has_focus)
        assert len(table.keys) == 3
        await pilot.press("escape")
        await until(pilot, lambda: len(table.keys) == 60)
        assert not pilot.app.query("FilterLine")
        assert pilot.app.query_one(ReplicaPanel).border_subtitle == "60 hosts · 60 nodes"
        await pilot.press("slash")
        at_once(pilot, *"qq", "ctrl+u", *"0:10", "enter")
        await until(pilot, lambda: table.has_focus and len(table.keys) == 3)
        await pilot.press("escape")
        await pilot.press("slash", "x", "escape")
        await until(pilot, lambda: len(table.keys) == 60 and table.has_focus)


async def test_columns_that_do_not_fit_come_by_right_and_left() -> None:
    there = Node()
    async with running(there, (60, 18)) as pilot:
        table = await opened(pilot, there, served())
        assert "tok/s" in screen_text(pilot)
        assert "version" not in screen_text(pilot)
        await pilot.press("right", "right", "right")
        await shown(pilot, "version")
        assert "node " in screen_text(pilot), "the id stays"
        await pilot.press("left", "left", "left")
        await until(pilot, lambda: "tok/s" in screen_text(pilot))
        await pilot.resize_terminal(200, 60)
        await shown(pilot, "version")
        assert "▸00000001*" in screen_text(pilot) or not table.has_focus


async def test_ids_rows_and_what_the_mouse_selects_are_copied() -> None:
    there = Node()
    async with running(there) as pilot:
        await opened(pilot, there, served())
        await pilot.press("j", "y")
        assert pilot.app.clipboard == "00000002" + "0" * 56
        await shown(pilot, "The id sent to the terminal's clipboard")
        await pilot.press("Y")
        assert pilot.app.clipboard.startswith("00000002  15:30   ● ready")
        await pilot.mouse_down(ReplicaTable, offset=(1, 1))
        await pilot.hover(ReplicaTable, offset=(9, 2))
        await pilot.mouse_up(ReplicaTable, offset=(9, 2))
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1, "a drag opens nothing"
        await pilot.press("y")
        first, second = pilot.app.clipboard.split("\n")
        assert first.startswith("00000001*")
        assert second.strip() == "00000002"


async def test_a_node_is_followed_to_its_end_and_to_its_neighbours() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        table = await opened(pilot, there, hosts(3))
        await pilot.press("enter")
        await shown(pilot, "Node 00000000")
        await shown(pilot, "1 of 3")
        busy = [node(n, (n, n + 10), tokens_per_s=12.5, kv_budget=2**30) for n in range(3)]
        later = msgspec.structs.replace(network(*busy), taken_at=1.0)
        there.first.show(later)
        await shown(pilot, "12.5 tokens/s")
        await pilot.press("n")
        await shown(pilot, "Node 00000001")
        await pilot.press("y")
        assert pilot.app.clipboard == node(1).node
        there.first.show(network(busy[0], busy[2]))
        await shown(pilot, "✖ gone: it is not on the network any more")
        await pilot.press("j")
        await shown(pilot, "Node 00000002")
        await pilot.press("j")
        await shown(pilot, "No further node in the table")
        await pilot.press("p")
        await shown(pilot, "Node 00000000")
        await pilot.press("n", "escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await until(pilot, lambda: number(table.cursor_key) == 2)


async def test_graphs_of_a_node_grow_while_it_is_looked_at() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("f2", "enter")
        await shown(pilot, "the last two minutes")
        for second in range(1, 9):
            one = node(1, (0, 15), me=True, tokens_per_s=float(second))
            view = network(one, node(2, (15, 30)))
            there.first.show(msgspec.structs.replace(view, taken_at=float(second)))
            await shown(pilot, f"{second}.0 tokens/s")
        await shown(pilot, "top 7.0")
        assert screen_text(pilot).count("█") == 1 + 4 + 8, "means of 1, 4 and 7"
        await pilot.resize_terminal(60, 18)
        await shown(pilot, "Node 00000001")
