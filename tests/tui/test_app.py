from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.events import Key
from tui_driver import (
    NARROW,
    WIDE,
    ready,
    running,
    screen_text,
    shown,
    until,
)
from tui_fakes import FakeAttachment, Node, model, network, node, served

from diffuse_core.domain.view import Event
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_tui.app import DiffuseApp
from diffuse_tui.presenter.spans import plain
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.coverage_map import CoverageMap
from diffuse_tui.widgets.event_log import MAX_EVENTS, EventLog
from diffuse_tui.widgets.prompt import Prompt
from diffuse_tui.widgets.replica_table import ReplicaTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_the_first_update_paints_everything() -> None:
    there = Node()
    async with running(there) as pilot:
        assert "Connecting" in screen_text(pilot)
        there.first.show(
            network(node(1, (0, 10), me=True), node(2, (20, 30))),
            Event(0.0, "good", "joined [red]the\x1b[2J network"),
        )
        await shown(pilot, "○ Incomplete: layers 10:20 of 30 are held by no live node")
        text = screen_text(pilot)
        assert "● attached" in text
        assert "!! gap !!" in text
        assert "*00000001" in text
        assert "4.0 GiB of 8.0 GiB" in text
        await shown(pilot, "✔ joined [red]the␛[2J network")
        assert "cannot answer yet: layers 10:20" in screen_text(pilot)


async def test_a_lost_node_is_told_and_attached_again() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        there.errors.append(Unreachable("nobody at [127.0.0.1:9440]"))
        fake.feed.put_nowait(ChannelClosed("the node went away"))
        await until(pilot, lambda: len(there.attachments) == 2)
        assert fake.closed
        there.attachments[1].show(served())
        await shown(pilot, "● attached")


async def test_an_unreachable_node_is_told_with_its_reason() -> None:
    there = Node(Unreachable("nobody at [127.0.0.1:9440]; start one"))
    app = DiffuseApp(there.attach, retry=(60.0,))
    async with app.run_test(size=WIDE) as pilot:
        await shown(
            pilot, "✖ Disconnected: nobody at [127.0.0.1:9440]; start one · retrying in 60 s"
        )
        assert "cannot answer yet: nobody at [127.0.0.1:9440]" in screen_text(pilot)
        app.query_one(ReplicaTable).focus()
        await pilot.press("r")
        await until(pilot, lambda: len(there.attachments) == 1)


async def test_a_feed_that_ends_is_told() -> None:
    class Ends(FakeAttachment):
        async def updates(self) -> AsyncIterator[None]:
            for update in ():
                yield update

    async def attach() -> Ends:
        return Ends()

    app = DiffuseApp(attach, retry=(60.0,))
    async with app.run_test(size=WIDE) as pilot:
        await shown(pilot, "the node closed the feed")


async def test_a_silent_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_tui.screens.main.STALL_S", 0.05)
    there = Node()
    async with running(there) as pilot:
        there.first.show(served())
        await shown(pilot, "◐ Stalled: no word from the node")
        # Or the state to be seen would be gone again after the same moment.
        monkeypatch.setattr("diffuse_tui.screens.main.STALL_S", 60.0)
        there.first.show(served())
        await shown(pilot, "● attached")


async def test_nodes_that_left_leave_the_table() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        fake = await ready(pilot, there)
        fake.show(network(node(2, (15, 30)), node(3)))
        await shown(pilot, "Incomplete: layers 0:15")
        table = pilot.app.query_one(ReplicaTable)
        assert [key[:8] for key in table.keys] == ["00000002", "00000003"]


async def test_asking_while_disconnected_fails_with_a_reason() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        app = pilot.app
        await app._let_go()
        app.query_one(Prompt).insert("Hello")
        await pilot.press("enter")
        await shown(pilot, "✖ the app is not attached to its node")
        assert app.query_one(Prompt).text == "Hello"


async def test_why_there_is_no_node_is_told_to_its_end_in_a_small_terminal() -> None:
    why = "no node runs here: start one with a command that is too long for the line on top of it"
    app = DiffuseApp(Node(Unreachable(why)).attach, retry=(60.0,))
    async with app.run_test(size=NARROW) as pilot:
        await shown(pilot, "cannot answer yet: no node runs here")
        told = " ".join(str(pilot.app.query_one("#note").visual).split())
        assert told == f"cannot answer yet: {why} · retrying in 60 s (r: now)"


LARGE = [pytest.param(size, marks=pytest.mark.slow) for size in ((120, 40), (200, 60))]


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (30, 8), (120, 20), *LARGE])
async def test_every_size_draws_and_every_page_can_be_reached(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(served())
        await until(pilot, lambda: pilot.app.query_one(Banner).facts.view is not None)
        for key in ("f2", "f3", "f4", "f1"):
            await pilot.press(key)
            lines = screen_text(pilot).split("\n")
            assert {len(line) for line in lines} == {size[0]}
            if key == "f4":
                assert ("This needs 40 x 12" in "".join(lines)) == (size == (30, 8))


async def test_pages_at_80_by_24() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        await ready(pilot, there)
        assert "Replicas" not in screen_text(pilot)
        assert "Chat ─" in screen_text(pilot)
        await pilot.press("f2")
        await shown(pilot, "Replicas ─")
        assert "Chat ─" not in screen_text(pilot)
        await pilot.press("c")
        await shown(pilot, "Chat ─")
        await pilot.press("c")
        assert pilot.app.query_one(Prompt).text == "c"
        await pilot.press("f4")
        await shown(pilot, "This machine ─")
        await pilot.press("n")
        await shown(pilot, "Replicas ─")


@pytest.mark.parametrize("size", [NARROW, (40, 12), WIDE])
async def test_what_is_typed_at_once_is_a_question(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        await pilot.press("q")
        there.first.show(served())
        await until(pilot, lambda: pilot.app.query_one(Banner).facts.view is not None)
        await pilot.press("e", "m", "question_mark", "q")
        assert pilot.app.query_one(Prompt).text == "qem?q"
        assert "Chat" in screen_text(pilot)


@pytest.mark.parametrize("open_chat", [False, True])
async def test_without_an_answering_model_the_network_opens_unless_chat_was_asked_for(
    open_chat: bool,
) -> None:
    there = Node()
    async with running(there, NARROW, open_chat=open_chat) as pilot:
        there.first.show(network(node(1, (0, 10))))
        await shown(pilot, "○ Incomplete")
        await shown(pilot, "Chat ─" if open_chat else "Replicas ─")
        assert isinstance(pilot.app.focused, Prompt if open_chat else ReplicaTable)
        # A page that is in use is never taken away.
        there.first.show(served())
        await shown(pilot, "◐ Fragile")
        await shown(pilot, "Chat ─" if open_chat else "Replicas ─")


@pytest.mark.parametrize(
    ("keys", "page"),
    [("ec", "chat"), ("ecec", "chat"), ("cne", "chat"), ("ne", "machine"), ("en", "network")],
)
async def test_page_and_focus_agree_after_a_burst_of_keys(keys: str, page: str) -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        await ready(pilot, there)
        await pilot.press("escape")
        screen = pilot.app.screen
        for key in keys:
            # As the driver does: all of them are there before the first is worked off.
            pilot.app.post_message(Key(key, key))
        await until(pilot, lambda: screen.has_class(f"-page-{page}"))
        await pilot.pause()
        target = {"chat": Prompt, "machine": EventLog, "network": ReplicaTable}[page]
        assert isinstance(pilot.app.focused, target)
        assert pilot.app.focused.has_focus
        assert screen.has_class(f"-page-{page}")


@pytest.mark.parametrize("size", [NARROW, (40, 12)])
async def test_the_footer_names_keys_that_work_in_the_prompt(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        await ready(pilot, there) if size == NARROW else None
        await shown(pilot, "F1 Help F2 Network F3 Chat F4 Machine")
        assert isinstance(pilot.app.focused, Prompt)
        assert ("F5 Model F6 What if F7 Host ^Q Quit" in screen_text(pilot)) == (size == NARROW)


async def test_every_page_tells_something_at_40_by_12() -> None:
    there = Node()
    async with running(there, (40, 12)) as pilot:
        there.first.show(served(), *(Event(0.0, "info", f"event {n}") for n in range(9)))
        await pilot.press("f2")
        await shown(pilot, "*00000001  E█")
        await shown(pilot, " 00000002")
        await shown(pilot, " holders")
        assert "● ready" in screen_text(pilot)
        await pilot.press("f4")
        await shown(pilot, "event 8")
        await shown(pilot, "event 7")
        assert "traffic" in screen_text(pilot)


async def test_enter_on_a_replica_tells_all_about_it() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("f2", "down", "enter")
        await shown(pilot, "Node 00000002")
        assert "00000002" + "0" * 56 in screen_text(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert isinstance(pilot.app.focused, ReplicaTable)


async def test_a_node_alone_is_not_called_connected() -> None:
    there = Node()
    async with running(there) as pilot:
        there.first.show(network(node(1, me=True)))
        await shown(pilot, "◌ Alone: no other node yet: see Events, give --bootstrap, or F7")
        assert pilot.app.query_one(Banner).has_class("-warning")
        assert "1 host · 1 node" in screen_text(pilot)
        assert "attached" not in screen_text(pilot)


async def test_resizing_keeps_what_is_in_use() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        pilot.app.query_one(Prompt).insert("draft")
        await pilot.resize_terminal(60, 20)
        await shown(pilot, "draft")
        assert "Replicas ─" not in screen_text(pilot)
        await pilot.resize_terminal(*WIDE)
        await shown(pilot, "Replicas ─")
        assert isinstance(pilot.app.focused, Prompt)


async def test_updates_keep_cursor_and_scroll() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        hosts = [node(n, (n % 20, n % 20 + 10)) for n in range(100)]
        there.first.show(network(*hosts))
        table = pilot.app.query_one(ReplicaTable)
        await until(pilot, lambda: len(table.keys) == 100)
        table.focus()
        table.move_to(table.keys[30])
        await pilot.press("down")
        before, scroll = table.cursor_key, table.scroll_y
        changed = [node(n, (n % 20, n % 20 + 10), tokens_per_s=5.0) for n in range(100)]
        there.first.show(network(*changed))
        await shown(pilot, "5.0")
        assert table.cursor_key == before
        assert table.scroll_y == scroll
        there.first.show(network(node(500, (0, 1)), *changed[1:]))
        await until(pilot, lambda: table.keys[0].startswith("000001f4"))
        assert table.cursor_key == before


async def test_the_map_scrolls_between_ruler_and_counts() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        hosts = [node(n, (0, 30)) for n in range(50)]
        there.first.show(network(*hosts))
        await shown(pilot, "Robust")
        await pilot.press("f2")
        map_ = pilot.app.query_one(CoverageMap)
        map_.focus()
        await pilot.press("u", "G")
        await until(pilot, lambda: map_.scroll_offset.y > 0)
        lines = [plain(map_._line(y)) for y in range(map_.size.height)]
        assert lines[0].startswith(" layers")
        assert lines[-1].startswith(" holders")
        assert lines[-2].startswith(" 00000031 ▸E")


async def test_the_model_can_be_changed() -> None:
    there = Node()
    async with running(there) as pilot:
        view = served()
        other = model(view.nodes, id="other-[model]", fingerprint="cd" * 32, servable=False)
        there.first.show(
            type(view)(taken_at=0.0, me=None, nodes=view.nodes, models=(*view.models, other))
        )
        await shown(pilot, "m: 2 models")
        await pilot.press("f5")
        await shown(pilot, "Models on this network")
        await pilot.press("down", "enter")
        await shown(pilot, "other-[model] 30 layers")


async def test_a_wanted_model_is_waited_for() -> None:
    there = Node()
    async with running(there, model="wanted") as pilot:
        there.first.show(served())
        await shown(pilot, "Waiting: no host on this network holds wanted yet")
        await pilot.press("f5")
        await pilot.press("escape")


async def test_help_shows_the_keys_and_closes() -> None:
    there = Node()
    async with running(there) as pilot:
        await pilot.press("f1")
        await shown(pilot, "Alt+Enter")
        await pilot.press("question_mark")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def test_the_event_log_is_bounded_and_follows_its_end() -> None:
    there = Node()
    async with running(there) as pilot:
        events = [Event(0.0, "info", f"event {n} [x]") for n in range(MAX_EVENTS + 50)]
        there.first.show(served(), *events)
        await shown(pilot, f"event {MAX_EVENTS + 49} [x]")
        log = pilot.app.query_one(EventLog)
        assert log.count == MAX_EVENTS
        log.focus()
        await pilot.press("home")
        there.first.show(served(), Event(0.0, "info", "one more"))
        await until(pilot, lambda: log.unseen == 1)
        assert log.scroll_offset.y == 0


async def test_leaving_detaches_and_ctrl_c_asks_once() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await pilot.press("ctrl+c")
        await shown(pilot, "Press Ctrl+C again")
        assert not fake.closed
        await pilot.press("ctrl+c")
    assert fake.closed
    assert pilot.app.return_code == 130


async def test_ctrl_q_quits_at_once() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("ctrl+q")
    assert pilot.app.return_code == 0


async def test_q_quits_outside_the_prompt_only() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("q")
        assert pilot.app.query_one(Prompt).text == "q"
        await pilot.press("escape", "q")
        await shown(pilot, "Press q again to quit")
        assert pilot.app.return_code is None
        await pilot.press("q")
    assert pilot.app.return_code == 0
