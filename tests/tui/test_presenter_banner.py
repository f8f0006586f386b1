from __future__ import annotations

import pytest
from tui_fakes import served

from diffuse_tui.presenter.banner import Link, title_line
from diffuse_tui.presenter.spans import plain

WAYS = [
    ("Chat",),
    ("What if",),
    ("Replicas", "1a2b3c4d"),
    ("Replicas", "a name that is very long indeed \x1b[2J"),
]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("crumbs", WAYS)
def test_the_way_is_told_and_model_and_link_stay(crumbs: tuple[str, ...], width: int) -> None:
    view = served()
    line = plain(title_line("Diffuse", view.models[0], view, Link("attached"), width, crumbs))
    assert len(line) == width
    assert "tiny-ll" in line
    assert line.endswith("● attached ")
    assert crumbs[-1][:8] in line
    assert "\x1b" not in line
    if width == 120 and len(crumbs[-1]) < 20:
        assert line.startswith(f" Diffuse › {crumbs[0]}")


def test_without_room_the_last_part_of_the_way_is_left() -> None:
    view = served()
    way = ("Replicas", "1a2b3c4d")
    line = plain(title_line("Diffuse", view.models[0], view, Link("attached"), 60, way))
    assert line.startswith(" › 1a2b3c4d  tiny-llama")
