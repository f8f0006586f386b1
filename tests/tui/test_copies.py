from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tui_driver import ready, running, shown
from tui_fakes import Node

from diffuse_tui.copies import MAX_FILE, MAX_TERMINAL, NAME, Copies
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"TMUX": "socket,1,0"}, "through tmux or screen it may not arrive"),
        ({"SSH_TTY": "/dev/pts/1"}, "through ssh it may not arrive"),
        ({"TERM": "linux"}, "this terminal has none"),
    ],
)
def test_where_the_terminal_is_in_doubt_a_file_has_the_text(
    tmp_path: Path, environ: dict[str, str], why: str
) -> None:
    told = Copies(tmp_path, environ).told("x\ud800", "the answer")
    path = tmp_path / NAME
    assert told == (
        f"the answer sent to the terminal's clipboard (OSC 52; {why}), and kept in {path}"
    )
    assert path.read_text() == "x?"
    assert path.stat().st_mode & 0o777 == 0o600


def test_where_there_is_no_doubt_nothing_is_written(tmp_path: Path) -> None:
    copies = Copies(tmp_path, {"TERM": "xterm-256color"})
    assert copies.told("x", "it").endswith("(OSC 52; some terminals ignore it)")
    assert not list(tmp_path.iterdir())
    assert f"{tmp_path / NAME}" in copies.told("x" * (MAX_TERMINAL + 1), "it")


def test_a_file_that_cannot_be_written_is_not_told_of(tmp_path: Path) -> None:
    environ = {"TMUX": "x"}
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    for copies, text in (
        (Copies(None, environ), "x"),
        (Copies(tmp_path / NAME / "below", environ), "x"),
        (Copies(tmp_path, environ), "x"),
        (Copies(tmp_path, environ), "x" * (MAX_FILE + 1)),
    ):
        assert "kept in" not in copies.told(text, "it")
    assert not (tmp_path / "elsewhere").exists()


async def test_the_app_says_where_copied_text_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", "x")
    there = Node()
    async with running(there, state=tmp_path) as pilot:
        await ready(pilot, there)
        copy(pilot.app.screen, "text", "a word")
        await shown(pilot, "a word sent to")
        assert pilot.app.clipboard == "text"
        assert (tmp_path / NAME).read_text() == "text"
        # What is said hides neither what is typed nor how the network stands.
        toast = pilot.app.screen.query_one("Toast").region
        for other in (Prompt, Banner):
            assert not toast.overlaps(pilot.app.screen.query_one(other).region)
    # With --no-history nothing of what was said goes to the disk, not even this.
    (tmp_path / NAME).unlink()
    async with running(Node(), state=tmp_path, history=":memory:") as pilot:
        copy(pilot.app.screen, "text", "a word")
        await shown(pilot, "a word sent to")
        assert not (tmp_path / NAME).exists()
