"""What all screens share: help, breadcrumbs, the palette, one panel large, sizes, leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from textual.command import CommandPalette
from textual.widgets import Static
from tui_archive import put_turn
from tui_driver import NARROW, WIDE, ask, ready, running, screen_text, shown, until
from tui_fakes import Node, finished, served

from diffuse_core.domain.view import Event, TextDelta
from diffuse_tui.presenter.banner import Link
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.screens.main import MainScreen
from diffuse_tui.screens.messages import EventsArrived, LinkChanged, ViewArrived
from diffuse_tui.screens.palette import bound
from diffuse_tui.screens.question import Question
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.prompt import Prompt
from diffuse_tui.widgets.replica_table import ReplicaTable

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.pilot import Pilot

    from diffuse_tui.presenter.facts import Facts


class Somewhere(LiveScreen[None]):
    CRUMB = "Somewhere"

    def compose_body(self) -> ComposeResult:
        panel = Static("the body", id="body-of-it")
        panel.can_focus = True
        panel.border_title = "Panel"
        yield panel
        yield Static("beside it", id="beside")

    def show_facts(self, facts: Facts) -> None:
        self.query_one("#beside", Static).update(f"link {facts.link.state}")


async def opened(pilot: Pilot[None]) -> Somewhere:
    main = pilot.app.screen
    assert isinstance(main, MainScreen)
    screen = Somewhere(main._facts)
    await pilot.app.push_screen(screen)
    await shown(pilot, "the body")
    return screen


@pytest.mark.slow
async def test_a_screen_over_the_main_one_has_the_frame_and_the_habits() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        await ready(pilot, there)
        assert screen_text(pilot).startswith(" Diffuse › Chat  tiny-llama 30 layers")
        screen = await opened(pilot)
        await shown(pilot, "link attached")
        first = screen_text(pilot).split("\n")[0]
        assert first.startswith(" Diffuse › Somewhere  tiny-llama")
        assert first.endswith("● attached ")
        await pilot.press("question_mark")
        await shown(pilot, "Every screen")
        assert "the coverage map" not in screen_text(pilot)
        await pilot.press("f1", "t")
        assert pilot.app.theme == "light"
        await pilot.press("tab", "z")
        await shown(pilot, "the body")
        assert screen.maximized is not None
        assert "link attached" not in screen_text(pilot)
        await pilot.press("escape")
        await shown(pilot, "link attached")
        await pilot.press("colon")
        await until(pilot, lambda: CommandPalette.is_open(pilot.app))
        await pilot.press("escape")
        await pilot.resize_terminal(50, 15)
        await shown(pilot, "This needs 60 x 18 cells;")
        assert "Esc goes back" in screen_text(pilot)
        assert "the body" not in screen_text(pilot)
        await pilot.resize_terminal(60, 18)
        await shown(pilot, "the body")
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, MainScreen))


@pytest.mark.slow
async def test_function_keys_lead_from_one_screen_to_another() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        ways = {
            "f7": "Diffuse › Host",
            "f6": "Diffuse › What if",
            "f9": "Diffuse › Parameters",
            "f3": "Diffuse › Chat",
        }
        for key, crumbs in ways.items():
            await pilot.press(key)
            await shown(pilot, crumbs)
            assert len(pilot.app.screen_stack) == (1 if key == "f3" else 2)
        # The palette begins with what leads somewhere, whatever has the focus.
        await pilot.press("escape")
        titles = [each.title for each in bound(pilot.app, pilot.app.screen)]
        assert titles.index("What if") < titles.index("Scroll Down")
        # Out of two, and a key that is typed right after goes where the first one leads.
        await pilot.press("f2", "enter", "w")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 3)
        await pilot.press("f4", "slash", *"xyz")
        await shown(pilot, "Diffuse › Machine")
        await shown(pilot, "xyz")
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.slow
async def test_the_palette_finds_keys_models_nodes_and_themes() -> None:
    there = Node()
    async with running(there, history=":memory:") as pilot:
        await ready(pilot, there)
        assert pilot.app.archive is not None
        number = pilot.app.archive.create("tiny-llama", "", Params(), 1.0)
        put_turn(pilot.app.archive, number, KeptTurn(number=0, question="Of whales"), 1.0)
        pilot.app.archive.set_title(number, "Of whales", 1.0)
        # From the prompt, where a colon is text.
        await pilot.press("colon", "ctrl+p")
        await shown(pilot, "Search for commands")
        await shown(pilot, "Model: tiny-llama")
        text = screen_text(pilot)
        assert "Theme: contrast" in text
        (network,) = [line for line in text.split("\n") if "  Network  " in line]
        assert network.split() == ["Network", "F2"]
        await pilot.press(*"contrast")
        await until(pilot, lambda: "Network  " not in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.theme == "contrast")
        assert pilot.app.query_one(Prompt).text == ":"
        await pilot.press("ctrl+p", *"whales")
        await shown(pilot, "Chat: Of whales")
        await pilot.press("escape")
        await pilot.press("ctrl+p", *"00000002")
        await shown(pilot, "Node: 00000002")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, MainScreen | CommandPalette))
        await shown(pilot, "00000002" + "0" * 56)


async def test_one_panel_fills_the_screen_and_goes_back() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        screen = pilot.app.screen
        await pilot.press("f2", "z")
        await shown(pilot, "Replicas ─")
        await until(pilot, lambda: "Coverage ─" not in screen_text(pilot))
        lines = screen_text(pilot).split("\n")
        assert lines[0].startswith(" Diffuse › Network")
        assert "F1 Help" in lines[-1]
        assert pilot.app.query_one(ReplicaTable).size.width > WIDE[0] - 10
        # Another page: all panels again, as the focus is no longer in the one that was large.
        await pilot.press("c")
        await shown(pilot, "Coverage ─")
        assert screen.maximized is None
        await pilot.press("escape", "z")
        await until(pilot, lambda: "Coverage ─" not in screen_text(pilot))
        await pilot.press("z")
        await shown(pilot, "Coverage ─")


async def test_quitting_asks_where_an_answer_would_end() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Hello")
        pilot.app.query_one(ReplicaTable).focus()
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await shown(pilot, "An answer is being written")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, MainScreen))
        assert pilot.app.query_one(ChatPane).busy
        await pilot.press("q")
        await shown(pilot, "An answer is being written")
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)
    assert pilot.app.return_code == 0
    assert there.first.generations[0].closed.is_set()


SIZES = [(1, 1), (200, 60), (30, 8), (60, 18), (3, 50), (300, 2), (80, 24), (1, 1), (120, 40)]


@pytest.mark.slow
async def test_any_size_at_any_moment_does_no_harm() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Hello")
        fake.generations[0].events.put_nowait(TextDelta("some **text**\n\nand more", (1, 2)))
        for key in ("", "ctrl+p", "f1", "f5", "z", "f6", "f7", "f8"):
            if key:
                await pilot.press(key)
            for size in SIZES:
                await pilot.resize_terminal(*size)
                fake.show(served())
                fake.generations[0].events.put_nowait(TextDelta("x ", (3,)))
                await pilot.pause()
            lines = screen_text(pilot).split("\n")
            assert {cell_len(line) for line in lines} == {WIDE[0]}
            if len(pilot.app.screen_stack) > 1:
                await pilot.press("escape")
        fake.generations[0].events.put_nowait(finished())
        fake.generations[0].events.put_nowait(None)
        await until(pilot, lambda: not pilot.app.query_one(ChatPane).busy)
        assert pilot.app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 18), (80, 24)])
async def test_every_screen_says_something_sensible_at_small_sizes(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        await ready(pilot, there)
        await pilot.press("escape")
        for key in ("n", "e", "c", "escape", "w", "escape", "h", "escape", "escape", "m"):
            await pilot.press(key)
            await pilot.pause()
            lines = screen_text(pilot).split("\n")
            assert {len(line) for line in lines} == {size[0]}
            assert "This needs" not in "".join(lines)
            assert "Diffuse" in lines[0] or len(pilot.app.screen_stack) > 1


@pytest.mark.parametrize("key", ["f2", "f5", "f6", "f7", "f8", "f9"])
async def test_a_picture_that_comes_while_the_app_ends_does_no_harm(key: str) -> None:
    there = Node()
    async with running(there, history=":memory:") as pilot:
        await ready(pilot, there)
        await pilot.press(key)
        for screen in pilot.app.screen_stack:
            await screen.query("*").exclude("ToastRack").remove()
        main = pilot.app.screen_stack[0]
        main.post_message(ViewArrived(served(), None))
        main.post_message(EventsArrived((Event(0.0, "info", "late"),)))
        main.post_message(LinkChanged(Link("disconnected", "gone")))
        for screen in pilot.app.screen_stack[1:]:
            screen.show(pilot.app.screen_stack[0]._facts)
        await pilot.pause()
