from __future__ import annotations

import pytest

from diffuse_tui.presenter.keys import SECTIONS, help_lines
from diffuse_tui.presenter.spans import plain


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_help_lists_the_screens_own_keys_first_and_leaves_none_out(name: str) -> None:
    lines = [plain(line) for line in help_lines(name, 120)]
    text = "\n".join(lines)
    sections = [section for section in SECTIONS[name] if section.keys]
    assert lines[0] == sections[0].heading
    for section in sections:
        for key, what in section.keys:
            assert key in text
            assert what in text


def test_a_screen_without_keys_of_its_own_tells_those_of_every_screen() -> None:
    assert plain(help_lines("Somewhere new", 80)[0]) == "Every screen"


@pytest.mark.parametrize("width", [51, 78])
def test_what_needs_more_lines_goes_on_below_the_text(width: int) -> None:
    for name in SECTIONS:
        lines = [plain(line) for line in help_lines(name, width)]
        assert max(map(len, lines)) <= width
        for line in lines:
            # A line begins a heading, an entry, or goes on where the texts of entries begin.
            assert line[:2] != "  " or line[20:21] == " " or not line[:21].strip()
            assert line[:3] != "   " or line.startswith(" " * 21 + line[21])


def test_no_key_is_told_twice_on_one_screen_with_two_meanings() -> None:
    for sections in SECTIONS.values():
        own = [key for key, _ in sections[0].keys]
        assert len(own) == len(set(own))
