"""The Host screen over a desk that the test drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input
from tui_desk import FIT, FakeDesk
from tui_driver import NARROW, at_once, ready, running, screen_text, shown, until
from tui_fakes import TELEMETRY, FakeAttachment, Node, network, node, served

from diffuse_core.domain.machine import HostProgress
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import FeedUpdate
from diffuse_tui.presenter.hosting import (
    Choice,
    Complete,
    Completed,
    End,
    Keep,
    PlanFor,
    Planned,
    Start,
    Status,
)
from diffuse_tui.screens.host import HostScreen
from diffuse_tui.widgets.model_input import Proposals

if TYPE_CHECKING:
    from textual.pilot import Pilot

PLAIN = {"stage": "holds no slice"}
LOADING = {
    "stage": "loading 0:12, 43 %",
    "model": "smol",
    "slice": Slice(0, 12),
    "progress": HostProgress("loading", 0.43, Slice(0, 12), 43 << 20, 100 << 20),
}
READY = {
    "stage": "ready",
    "model": "smol",
    "slice": Slice(0, 12),
    "reason": "fills the gap 0:12 of 30",
    "weight_bytes": 203 << 20,
    "kv_budget": 1 << 30,
    "sessions": 2,
}


def tick(fake: FakeAttachment, at: float, **telemetry: object) -> None:
    """One update of the feed, at Unix time `at`."""
    facts = {name: getattr(TELEMETRY, name) for name in TELEMETRY.__struct_fields__}
    view = network(node(1, me=True), node(2, (12, 30)))
    view = type(view)(taken_at=at, me=view.me, nodes=view.nodes, models=view.models)
    told = type(TELEMETRY)(**(facts | telemetry))
    fake.feed.put_nowait(FeedUpdate(view=view, telemetry=told))


async def opened(pilot: object, there: Node) -> FakeAttachment:
    tick(there.first, 1.0, **PLAIN)
    await shown(pilot, "attached")
    await pilot.press("escape", "h")
    await shown(pilot, "› Host")
    return there.first


@pytest.mark.slow
async def test_a_model_is_chosen_planned_for_and_started() -> None:
    there, desk = Node(), FakeDesk()
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await opened(pilot, there)
        await shown(pilot, "auto  the model of the network that needs")
        # What is on the network comes first; arrows and Enter take it.
        await pilot.press("down", "enter")
        await until(pilot, lambda: desk.orders == [PlanFor(Choice("tiny-llama"))])
        assert "finding out what of tiny-llama would fit" in screen_text(pilot)
        desk.say(Planned(Choice("other"), FIT))
        desk.say(Planned(Choice("tiny-llama"), None, "tiny-llama cannot be fetched"))
        await shown(pilot, "✖ failed    tiny-llama cannot be fetched")
        # A path is completed by Tab as far as it goes, and settings change the plan.
        await pilot.press("slash", *"/mo")
        await until(pilot, lambda: desk.orders[-1] == Complete("/mo"))
        desk.say(Completed("/mo", ("/models/a.gguf", "/models/b.gguf")))
        await shown(pilot, "/models/b.gguf  file")
        await pilot.press("tab")
        field = pilot.app.screen.query_one("#host-model", Input)
        assert field.value == "/models/"
        await pilot.press("tab")
        assert pilot.app.focused.id == "host-memory"
        await pilot.press(*"2GB", "tab", "space", "shift+tab", "enter")
        choice = Choice("/models/", memory="2GB", dtype="fp32")
        await until(pilot, lambda: desk.orders[-1] == PlanFor(choice))
        desk.say(Planned(choice, FIT))
        await shown(pilot, "would take  layers 0:12")
        for told in (
            "because     fills the gap 0:12 of 30",
            "weighs      293 MiB: layers 203 MiB + KV cache 90 MiB",
            "changes     Incomplete → Fragile",
            "more memory with 100 MiB more",
        ):
            assert told in screen_text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: desk.orders[-1] == Start(choice))
        desk.say(Status(doing="starting a host of smol"))
        await shown(pilot, "◌ starting a host of smol …")
        count = len(desk.orders)
        await pilot.press("s")
        desk.say(Status(failure="the memory cap is too small for one layer"))
        await shown(pilot, "✖ failed    the memory cap is too small")
        assert len(desk.orders) == count


async def test_what_is_typed_at_once_is_taken_in_its_order() -> None:
    there, desk = Node(), FakeDesk()
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await opened(pilot, there)
        at_once(pilot, *"auto", "ctrl+u", *"demo", "enter")
        await until(pilot, lambda: desk.orders == [PlanFor(Choice("demo"))])
        await pilot.press("slash")
        assert pilot.app.screen.query_one("#host-model", Input).selection == (0, 4)


async def test_what_is_chosen_is_what_was_under_the_cursor_though_the_list_has_changed() -> None:
    there, desk = Node(), FakeDesk()
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await opened(pilot, there)
        proposals = pilot.app.screen.query_one(Proposals)
        await until(pilot, lambda: proposals.option_count == 3)
        last = Proposals.OptionSelected(proposals, proposals.get_option_at_index(2), 2)
        there.first.show(network(node(1, me=True)))
        await until(pilot, lambda: proposals.option_count == 2)
        proposals.post_message(last)
        await until(pilot, lambda: desk.orders == [PlanFor(Choice("demo"))])


@pytest.mark.slow
async def test_a_host_is_watched_drained_and_stopped() -> None:
    there, desk = Node(), FakeDesk(mine=True)
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        fake = await opened(pilot, there)
        tick(fake, 2.0, **LOADING)
        await shown(pilot, "◌ Getting ready · loading 0:12")
        later = HostProgress("loading", 0.53, Slice(0, 12), 53 << 20, 100 << 20)
        tick(fake, 4.0, **{**LOADING, "progress": later})
        await shown(pilot, "53 %  53 MiB of 100 MiB · 5.0 MiB/s")
        tick(fake, 5.0, **READY)
        await shown(pilot, "● Ready")
        assert "layers 0:12 · 12 layers · 203 MiB" in screen_text(pilot)
        assert "started by  this app" in screen_text(pilot)
        assert "memory" not in screen_text(pilot)
        await pilot.press("d")
        await shown(pilot, "2 sessions may finish, for 10 minutes")
        await pilot.press("escape", "d", "d")
        await until(pilot, lambda: desk.orders == [End(600.0)])
        tick(fake, 6.0, **{**READY, "stage": "leaving: 2 sessions left"})
        await shown(pilot, "▚ Leaving · leaving: 2 sessions left")
        await pilot.press("d")
        await pilot.press("x", "x")
        await until(pilot, lambda: desk.orders == [End(600.0), End(0.0)])
        tick(fake, 7.0, **READY)
        await shown(pilot, "● Ready")
        await pilot.press("x", "enter", "tab", "space")
        await until(pilot, lambda: desk.orders[2:] == [End(None), Keep(False)])
        await shown(pilot, "after quitting the host ◂ends▸")
        # Back on the main screen, bad news is told all the same.
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, HostScreen))
        desk.say(Status(failure="the host ended by itself (signal 9): killed"))
        await shown(pilot, "the host ended by itself")


async def test_a_node_of_somebody_else_makes_room_only_when_asked() -> None:
    there, desk = Node(), FakeDesk(other=4711)
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await opened(pilot, there)
        await pilot.press(*"demo", "escape", "s")
        await shown(pilot, "(process 4711)")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HostScreen))
        await pilot.press("s")
        await shown(pilot, "(process 4711)")
        assert desk.orders == []
        await pilot.press("y")
        await until(pilot, lambda: desk.orders == [Start(Choice("demo"))])


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"mine": True}, "A host that was started here runs."),
        ({"other": 7, "earlier": True}, "A host that was started here earlier, and kept,"),
    ],
)
async def test_quitting_asks_what_becomes_of_a_host_of_the_apps(
    status: dict[str, object], told: str
) -> None:
    there, desk = Node(), FakeDesk(**status)
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await ready(pilot, there)
        await pilot.press("escape", "q")
        await shown(pilot, told)
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert desk.orders == []
        await pilot.press("q")
        await shown(pilot, told)
        await pilot.press("s")
        await until(pilot, lambda: pilot.app._exit)
        assert desk.orders == [Keep(keep=False)]


async def test_sentences_keep_off_the_edge_however_many_lines_they_take() -> None:
    there, desk = Node(), FakeDesk()
    refusal = (
        "here nothing can be hosted, for a reason that takes more than one line of this screen"
    )

    def told(pilot: Pilot[None]) -> list[str]:
        return str(pilot.app.screen.query_one("#host-lines").visual).splitlines()

    async with running(there, NARROW, desk=lambda: desk) as pilot:
        await opened(pilot, there)
        await shown(pilot, "Type a model or take one")
        await until(pilot, lambda: len(told(pilot)) > 2)
        assert all(line.startswith(" ") and len(line) <= 76 for line in told(pilot))
        desk.say(Status(refusal=refusal))
        await shown(pilot, "here nothing can be hosted")
        assert [line.startswith(" ") for line in told(pilot)] == [False, True, True]


async def test_where_hosting_is_refused_it_says_why_and_asks_nothing() -> None:
    there, desk = Node(), FakeDesk(refusal="this is a demo network", ends=False)
    async with running(there, NARROW, desk=lambda: desk) as pilot:
        fake = await opened(pilot, there)
        await shown(pilot, "this is a demo network")
        assert "after quitting" not in screen_text(pilot)
        await pilot.press("slash", *"demo", "enter", "s")
        tick(fake, 2.0, **READY)
        await shown(pilot, "● Ready")
        assert "this is a demo network" in screen_text(pilot)
        assert "after quitting" not in screen_text(pilot)
        await pilot.press("d", "x")
        await pilot.pause()
        assert isinstance(pilot.app.screen, HostScreen)
        assert desk.orders == []


async def test_a_host_takes_the_place_of_no_node_that_writes_an_answer() -> None:
    there, desk = Node(), FakeDesk()
    async with running(there, desk=lambda: desk) as pilot:
        there.first.show(served())
        await shown(pilot, "attached")
        await pilot.press(*"hi", "enter")
        await until(pilot, lambda: bool(there.first.generations))
        pilot.app.screen.action_host()
        await shown(pilot, "› Host")
        await pilot.press(*"demo", "escape", "s")
        await shown(pilot, "an answer is being written")
        assert desk.orders == []
