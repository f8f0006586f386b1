from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.color import Color
from tui_driver import NARROW, ready, running, screen_text
from tui_fakes import Node

import diffuse_tui
from diffuse_core.configuration import THEMES as KNOWN
from diffuse_tui.app import DiffuseApp
from diffuse_tui.remembered import FILE, Remembered
from diffuse_tui.widgets.paint import TONES
from diffuse_tui.widgets.theme import ANSI, CONTRAST, DARK, LIGHT, NAMES, THEMES, theme_after

if TYPE_CHECKING:
    from textual.theme import Theme

READ = ("foreground", "primary", "accent", "success", "warning", "error", "dim", "label")
"""All that text is drawn in."""
BEHIND = (
    "background",
    "surface",
    "panel",
    "boost",
    "good-tint",
    "warning-tint",
    "bad-tint",
    "block-cursor-background",
    "footer-background",
)


def colors_of(theme: Theme) -> dict[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def luminance(color: Color) -> float:
    parts = [part / 255 for part in color.rgb]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_of_contrast_is_the_usual_one() -> None:
    assert contrast(Color.parse("#000000"), Color.parse("#ffffff")) == pytest.approx(21)
    assert contrast(Color.parse("#777777"), Color.parse("#ffffff")) == pytest.approx(
        4.48, abs=0.01
    )


@pytest.mark.parametrize(("theme", "least"), [(DARK, 4.5), (LIGHT, 4.5), (CONTRAST, 7.0)])
def test_text_is_readable_on_all_that_is_behind_it(theme: Theme, least: float) -> None:
    colors = colors_of(theme)
    ratios = {
        (name, behind): contrast(Color.parse(colors[name]), Color.parse(colors[behind]))
        for name in READ
        for behind in BEHIND
    }
    assert not {pair: ratio for pair, ratio in ratios.items() if ratio < least}
    on_error = contrast(Color.parse(colors["background"]), Color.parse(colors["error"]))
    assert on_error >= least


def used_variables() -> set[str]:
    package = Path(diffuse_tui.__file__).parent
    sheets = [sheet.read_text(encoding="utf-8") for sheet in package.rglob("*.tcss")]
    text = "\n".join([*sheets, *TONES.values()])
    return set(re.findall(r"\$([a-z][a-z0-9-]*)", text))


@pytest.mark.parametrize("theme", THEMES, ids=NAMES)
def test_every_theme_has_every_variable_that_is_used(theme: Theme) -> None:
    assert used_variables() <= set(colors_of(theme))


def test_no_colour_is_written_outside_the_themes() -> None:
    package = Path(diffuse_tui.__file__).parent
    for sheet in package.rglob("*.tcss"):
        assert not re.findall(r"#[0-9a-fA-F]{6}\b|\brgb", sheet.read_text(encoding="utf-8"))


def test_the_terminals_own_colours_are_the_only_ones_of_the_ansi_theme() -> None:
    colors = colors_of(ANSI)
    drawn = {name: Color.parse(colors[name]) for name in (*READ, *BEHIND)}
    assert all(color.ansi is not None or color.is_transparent for color in drawn.values())


def test_settings_know_the_themes_by_their_names() -> None:
    assert NAMES == KNOWN


async def test_the_themes_go_round_and_the_last_one_is_remembered(tmp_path: Path) -> None:
    there = Node()
    seen = []
    async with running(there, NARROW, state=tmp_path) as pilot:
        await ready(pilot, there)
        text = screen_text(pilot)
        await pilot.press("escape")
        for _ in NAMES:
            await pilot.press("t")
            await pilot.pause()
            seen.append(pilot.app.theme)
            assert text.split("\n")[:5] == screen_text(pilot).split("\n")[:5]
        await pilot.press("t")
    assert seen == ["light", "contrast", "ansi", "dark"]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert DiffuseApp(there.attach, state=tmp_path).theme == "light"
    assert DiffuseApp(there.attach, state=tmp_path, theme="contrast").theme == "contrast"


@pytest.mark.parametrize(
    "damage", ["", "{", "[1]", '{"theme": 3}', '{"theme": "none such"}', "\xff", "[" * 60000]
)
def test_a_damaged_memory_is_forgotten(tmp_path: Path, damage: str) -> None:
    (tmp_path / FILE).write_text(damage, encoding="latin-1")
    assert DiffuseApp(Node().attach, state=tmp_path).theme == "dark"
    Remembered(tmp_path).keep("theme", "light")
    assert json.loads((tmp_path / FILE).read_text())["theme"] == "light"


def test_a_memory_that_cannot_be_written_is_kept_for_now(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = Remembered(tmp_path / "file" / "state")
    memory.keep("theme", "light")
    assert memory.text("theme") == "light"
    assert theme_after("none such") == NAMES[0]


async def test_without_colour_shapes_and_words_remain_and_no_colour_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await pilot.press("f2")
        text = screen_text(pilot)
        for sign in ("◐ Fragile", "● ready", "● attached", "*00000001"):
            assert sign in text
        no_color = pilot.app.get_line_filters()[-1]
        strips = pilot.app.screen._compositor.render_strips()
        sent = [no_color.apply(list(strip), Color(0, 0, 0)) for strip in strips]
        styles = [segment.style for strip in sent for segment in strip if segment.style]
        assert styles
        assert all(style.color is None or style.color.is_default for style in styles)
        assert all(style.bgcolor is None or style.bgcolor.is_default for style in styles)
        # Where the focus is, is told without colour, too.
        assert "┏━ Replicas" in text
        assert "╭─ Coverage" in text
