"""The model picker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tui_driver import running, screen_text, shown, until
from tui_fakes import Node, network, node, served

from diffuse_tui.presenter.columns import Sort
from diffuse_tui.presenter.model_rows import listed, model_cells, model_sentence
from diffuse_tui.presenter.spans import plain
from diffuse_tui.screens.models import ModelScreen
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.line_table import LineTable

if TYPE_CHECKING:
    from diffuse_core.domain.view import NetworkView


def many(count: int) -> NetworkView:
    base = served()
    first = base.models[0]
    more = tuple(
        replace(
            first,
            id=f"model-{number:03}",
            fingerprint=f"{number:064x}",
            contract="int4" if number % 2 else "bf16",
            state="Incomplete" if number % 3 == 0 else "Robust",
            servable=number % 3 != 0,
            hosts=number,
        )
        for number in range(1, count)
    )
    return replace(base, models=(first, *more))


def test_words_leave_some_models() -> None:
    models = many(20).models
    assert len(listed(models)) == 20
    assert [one.id for one in listed(models, "model-00 int4 answers").values()] == [
        "model-001",
        "model-005",
        "model-007",
    ]
    assert len(listed(models, "!answers")) == 6
    assert len(listed(models, "00000")) == 19
    assert listed(models, "nothing") == {}
    ranked = list(listed(models, "", Sort("hosts", falling=True)).values())
    assert ranked[0].hosts == 19
    assert next(iter(listed(models, "", Sort("state")).values())).state == "Robust"
    twins = (models[0], replace(models[0], id="a twin of another shape"))
    assert [one.id for one in listed(twins).values()] == ["tiny-llama", "a twin of another shape"]
    assert len(listed((models[0], replace(models[0], layers=12)))) == 1


def test_a_model_in_cells_and_in_a_sentence() -> None:
    shown_now = many(2).models[0]
    cells = [span.text for span in model_cells(shown_now, current=True)]
    assert cells == ["▶ tiny-llama", "◐ Fragile", "yes", "x1", "2", "30", "fp32"]
    gone = replace(shown_now, id="x\x1b[2J", servable=False)
    cells = [span.text for span in model_cells(gone, current=False)]
    assert (cells[0], cells[2]) == ("  x␛[2J", "not now")
    first, second = model_sentence(shown_now, 80)
    assert plain(first) == "◐ Fragile: every layer has only one holder"
    assert plain(second) == "abababababab · context of 2048 tokens"


@pytest.mark.parametrize("size", [(60, 18), pytest.param((120, 40), marks=pytest.mark.slow)])
async def test_a_model_is_found_among_many_and_stays_chosen(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:

        def shown_model() -> str:
            facts = pilot.app.screen_stack[0].query_one(Banner).facts
            return facts.model.id if facts.model is not None else ""

        there.first.show(many(200))
        await shown(pilot, "● attached")
        await pilot.press("f5")
        await shown(pilot, "Models on this network · 200")
        table = pilot.app.screen.query_one("#models", LineTable)
        assert table.cursor_key == f"model-199@{199:064x}"
        await pilot.press("slash", *"007")
        await until(pilot, lambda: len(table.keys) == 1)
        # While it is open the network goes on.
        there.first.show(many(150))
        await shown(pilot, "1 of 150")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: shown_model() == "model-007")
        assert not isinstance(pilot.app.screen, ModelScreen)
        # It stays chosen, whatever its place, also beside the same weights under another name.
        fewer = many(30)
        twin = replace(fewer.models[7], id="another-name", hosts=500)
        models = (twin, *reversed(fewer.models))
        there.first.show(replace(fewer, models=models))
        await pilot.press("f5")
        await shown(pilot, "Models on this network · 31")
        assert shown_model() == "model-007"
        await pilot.press("slash", *"another", "enter", "enter")
        await until(pilot, lambda: shown_model() == "another-name")


async def test_without_models_the_picker_says_what_to_do_and_fills_up() -> None:
    there = Node()
    async with running(there, (80, 24)) as pilot:
        there.first.show(network(node(1, me=True), node(2)))
        await shown(pilot, "● attached")
        await pilot.press("f5")
        await shown(pilot, "no model on this network yet; Esc, then F7: host one here")
        await pilot.press("enter")
        there.first.show(served())
        await shown(pilot, "Models on this network · 1")
        await pilot.click("#models", offset=(4, 1))
        assert "▶ tiny-llama" in screen_text(pilot)
        await pilot.click("#models", offset=(4, 1))
        await until(pilot, lambda: not isinstance(pilot.app.screen, ModelScreen))
