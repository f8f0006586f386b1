"""A file of conversations that somebody else writes into, or keeps to himself."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from tui_archive import put_turn

from diffuse_tui.archive import opening
from diffuse_tui.archive.store import Archive, open_archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params

if TYPE_CHECKING:
    from pathlib import Path

TURN = KeptTurn(number=0, question="q", answer="a", state="done", model="m", note="", at=1.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    archive = Archive(tmp_path / "chats.db")
    put_turn(archive, archive.create("m", "", Params(), 1.0), TURN, 1.0)
    archive.close()
    return tmp_path / "chats.db"


@pytest.mark.parametrize(
    "change",
    [
        "turn SET number = 'zero'",
        "turn SET answer = x'ff00'",
        "turn SET at = 'soon'",
        "conversation SET changed = 'later'",
        "conversation SET title = x'00'",
    ],
)
def test_values_of_other_types_are_damage(file: Path, change: str) -> None:
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute(f"UPDATE {change}")
    other.close()
    archive = open_archive(file)
    assert "damaged" in archive.notice
    assert archive.heads() == ()
    archive.close()
    again = open_archive(file)
    assert again.notice == ""
    again.close()


def test_one_that_keeps_the_file_is_waited_for_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "BUSY_S", 0.3)
    archive = Archive(file)
    number = archive.create("m", "", Params(), 1.0)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    told: list[str] = []
    archive.on_trouble = told.append
    put_turn(archive, number, TURN, 1.0)
    begun = time.perf_counter()
    put_turn(archive, number, TURN, 1.0)
    assert time.perf_counter() - begun < 0.25
    assert len(told) == 1
    other.execute("ROLLBACK")
    other.close()
    put_turn(archive, number, TURN, 1.0)
    assert archive.load(number).turns == (TURN,)
    archive.close()
