from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tui_fakes import MODEL, PRINT, model, network, node, served

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Coming, Remedy
from diffuse_tui.presenter.banner import Link, state_line, title_line
from diffuse_tui.presenter.spans import plain
from diffuse_tui.presenter.standing import (
    absence,
    choose,
    refusal,
    standing,
)

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView, NodeView


def sentence(*nodes: NodeView, **more: Any) -> str:
    state = standing(model(nodes, **more))
    return f"{state.glyph} {state.sentence}"


def test_each_state_has_its_shape_word_and_reason() -> None:
    whole = (0, 30)
    assert sentence(node(1, whole), node(2, whole)) == (
        "● Robust: every layer has 2 holders or more"
    )
    assert sentence(node(1, (0, 20)), node(2, (10, 30)), node(3, (0, 10)), node(4, (20, 30))) == (
        "● Robust: every layer has 2 holders or more"
    )
    assert sentence(node(1, whole), node(2, (0, 10)), node(3, (20, 30))) == (
        "◐ Fragile: layers 10:20 have one holder"
    )
    assert sentence(node(1, whole)) == "◐ Fragile: every layer has only one holder"
    assert sentence(node(1, whole), node(2, whole), target_replicas=3) == (
        "◐ Fragile: every layer has 2 of 3 holders"
    )
    assert sentence(node(1, (0, 10)), node(2, (20, 30))) == (
        "○ Incomplete: layers 10:20 of 30 are held by no live node"
    )


LOADING = Coming(Slice(10, 20), "loading", 1)


def test_what_is_coming_and_what_would_mend_it_is_told() -> None:
    base = (node(1, (0, 10)), node(2, (20, 30)))
    mend = Remedy(Slice(10, 20), 2**31, "Fragile", 1)
    assert sentence(*base, coming=(LOADING,)).endswith("node; 10:20 is being loaded by 1 host")
    assert sentence(*base, remedy=mend).endswith("node; one more 2.0 GiB host closes the gap")
    whole = (node(1, (0, 30)), node(2, (0, 10)), node(3, (20, 30)))
    mend = Remedy(Slice(10, 20), 2**31, "Robust", 2)
    assert sentence(*whole, remedy=mend) == (
        "◐ Fragile: layers 10:20 have one holder; one more 2.0 GiB host makes it Robust"
    )
    both = (node(1, (0, 30)), node(2, (0, 30)))
    assert sentence(*both, coming=(LOADING,)) == "● Robust: every layer has 2 holders or more"


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (
            120,
            "layers 10:20 have one holder; 10:20 is being loaded by 1 host; "
            "one more 2.0 GiB host gives every layer 2 holders",
        ),
        (
            80,
            "layers 10:20 have one holder; one more 2.0 GiB host gives every layer 2 holders",
        ),
        (72, "10:20 have one holder; one more 2.0 GiB host gives every layer 2 holders"),
        (60, "layers 10:20 have one holder; +2.0 GiB host: stronger"),
        (46, "10:20 have one holder; +2.0 GiB host: stronger"),
        (30, "layers 10:20 have one holder"),
        (21, "10:20 have one holder"),
        (12, "10:20 have …"),
    ],
)
def test_with_less_room_the_most_important_is_left(width: int, told: str) -> None:
    nodes = (node(1, (0, 30)), node(2, (0, 10)), node(3, (20, 30)))
    mend = Remedy(Slice(10, 20), 2**31, "Fragile", 2)
    here = model(nodes, coming=(LOADING,), remedy=mend)
    assert standing(here).fitted(width) == told
    line, _ = state_line(here, network(*nodes), Link("attached"), None, width + 12)
    assert plain(line) == f" ◐ Fragile: {told}"


def test_of_a_gap_it_is_told_first_that_it_is_being_filled() -> None:
    nodes = (node(1, (0, 10)), node(2, (20, 30)))
    mend = Remedy(Slice(10, 20), 2**31, "Fragile", 1)
    state = standing(model(nodes, coming=(LOADING,), remedy=mend))
    assert state.fitted(90) == (
        "layers 10:20 of 30 are held by no live node; 10:20 is being loaded by 1 host"
    )
    assert state.fitted(66) == "10:20 of 30 held by nobody; 10:20 is being loaded by 1 host"
    assert state.fitted(50) == "layers 10:20 of 30 are held by no live node"
    assert state.fitted(30) == "10:20 of 30 held by nobody"


def test_no_model_says_what_to_do() -> None:
    assert "F7: host one here" in absence(None).sentence
    assert absence("x[red]\x1b[2J").sentence.startswith("Waiting: ")
    assert "\x1b" not in absence("\x1b[2J").sentence


def test_refusals_name_the_missing_ranges() -> None:
    view = served()
    assert refusal(view.models[0], view, None) is None
    broken = network(node(1, (0, 10)))
    assert "layers 10:30 of 30" in refusal(broken.models[0], broken, None)
    assert "no host" in refusal(None, network(node(1)), "x")
    odd = model(view.nodes, servable=False)
    assert "loading" in refusal(odd, view, None)


def test_the_model_shown_is_the_chosen_then_the_wanted_then_the_servable() -> None:
    base = served().models[0]
    other = msgspec.structs.replace(base, id="other", fingerprint="cd" * 32, servable=False)
    view = msgspec.structs.replace(served(), models=(other, base))
    assert choose(view, None, None) is base
    assert choose(view, "other", None) is other
    assert choose(view, PRINT, None) is base
    assert choose(view, "nothing", None) is None
    # As commands take names.
    assert choose(view, "OTHER", None) is other
    assert choose(view, "other@cd", None) is other
    assert choose(view, "other@ab", None) is None
    demo = msgspec.structs.replace(base, id="smollm2-135m-instruct")
    assert choose(msgspec.structs.replace(view, models=(other, demo)), "demo", None) is demo
    assert choose(view, None, "other@" + "cd" * 32) is other
    assert choose(view, None, "gone") is base
    assert choose(network(), None, None) is None
    # The same weights under another name are another model: the two share no route.
    twin = msgspec.structs.replace(base, id="a-twin")
    view = msgspec.structs.replace(view, models=(twin, base))
    assert choose(view, None, f"{base.id}@{PRINT}") is base
    assert choose(view, None, f"a-twin@{PRINT}") is twin


def test_a_node_that_reached_no_other_says_so_and_is_not_green() -> None:
    gone = node(2, liveness="dead")
    for view in (network(node(1, me=True)), network(node(1, me=True), gone)):
        title = plain(title_line("Diffuse", None, view, Link("attached"), 80))
        assert (title.split("  ")[0], title[-8:]) == (" Diffuse", "◌ alone ")
        assert title.split("  ")[1] in ("1 node", "2 nodes")
        line, _ = state_line(None, view, Link("attached"), None, 60)
        assert plain(line) == " ◌ Alone: no other node reached yet; see Events"
        line, tone = state_line(None, view, Link("attached"), None, 80)
        assert plain(line).endswith("see Events, give --bootstrap, or F7: host one here")
        assert tone == "warning"
        assert "no other node" in refusal(None, view, "wanted")
    # With a whole model of its own it can answer, and the sentence is about that.
    lone = network(node(1, (0, 30), me=True))
    line, _ = state_line(lone.models[0], lone, Link("attached"), None, 80)
    assert plain(line).startswith(" ◐ Fragile")
    assert plain(title_line("D", lone.models[0], lone, Link("attached"), 80)).endswith("◌ alone ")
    assert absence(None, network(node(1, me=True), node(2))).word == "No model"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_title_fits_and_keeps_the_link_state(width: int) -> None:
    view = served()
    line = plain(title_line("Diffuse", view.models[0], view, Link("attached"), width))
    assert line.endswith("● attached ")
    assert len(line) <= max(width, 32)
    if width >= 80:
        assert f"{MODEL} 30 layers · fp32 · 2 nodes" in line
    assert plain(title_line("Diffuse", None, None, Link("connecting"), width)).strip()


def test_the_title_tells_of_more_models() -> None:
    base = served()
    other = msgspec.structs.replace(base.models[0], id="other")
    view = msgspec.structs.replace(base, models=(base.models[0], other))
    line = title_line("Diffuse", view.models[0], view, Link("attached"), 100)
    assert "m: 2 models" in plain(line)


def test_the_state_line_tells_of_the_link_first() -> None:
    view = served()

    def text(
        link: Link,
        shown: NetworkView | None = view,
        wanted: str | None = None,
        of: ModelView | None = view.models[0],
    ) -> str:
        return plain(state_line(of, shown, link, wanted, 80)[0])

    assert text(Link("connecting"), None, None, None).startswith(" ◌ Connecting: waiting")
    assert text(Link("disconnected", "gone · retrying")) == " ✖ Disconnected: gone · retrying"
    assert text(Link("stalled", "silent")) == " ◐ Stalled: silent"
    assert text(Link("attached")).startswith(" ◐ Fragile:")
    assert text(Link("attached"), None).startswith(" ◐ Fragile:")
    assert text(Link("connecting")).startswith(" ◐ Fragile:")
    assert text(Link("attached"), view, "x", None).startswith(" ○ Waiting:")
    assert len(text(Link("disconnected", "y" * 300))) == 80
