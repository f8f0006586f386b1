"""Conversations that outlive the app: what the app does about their file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from tui_archive import put_turn
from tui_driver import ask, idle, ready, running, screen_text, shown, until
from tui_fakes import Node, finished

from diffuse_core.domain.view import TextDelta
from diffuse_tui.archive.store import Archive
from diffuse_tui.launch import _history, _parse
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.screens.conversations import ConversationsScreen
from diffuse_tui.widgets.chat_pane import ChatPane

if TYPE_CHECKING:
    import pytest
    from textual.pilot import Pilot


def kept(pilot: Pilot[None]) -> Archive:
    return pilot.app.archive


async def test_a_conversation_goes_on_after_a_crash_and_in_another_run(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    there = Node()
    async with running(there, (80, 24), history=path) as pilot:
        await ready(pilot, there)
        await until(pilot, lambda: kept(pilot) is not None)
        await ask(pilot, there.first, "Why is the sky blue?")
        there.first.generations[0].events.put_nowait(TextDelta("Because of "))
        await until(pilot, lambda: kept(pilot).latest() is not None)
        before = path.read_bytes(), path.with_name("chats.db-wal").read_bytes()
    crashed = tmp_path / "crashed" / "chats.db"
    crashed.parent.mkdir()
    crashed.write_bytes(before[0])
    crashed.with_name("chats.db-wal").write_bytes(before[1])

    there = Node()
    async with running(there, (80, 24), history=crashed) as pilot:
        await shown(pilot, "Why is the sky blue?")
        assert kept(pilot).cut == 1
        number = pilot.app.query_one(ChatPane).dialogue_id
        await ready(pilot, there)
        await ask(pilot, there.first, "And at dusk?")
        there.first.generations[0].events.put_nowait(TextDelta("Red."))
        there.first.generations[0].events.put_nowait(finished())
        there.first.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        turns = kept(pilot).load(number).turns
        assert [turn.state for turn in turns] == ["cut", "done"]
        assert turns[1].answer == "Red."


async def test_the_conversation_in_the_chat_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chats.db"
    other = Archive(path)
    number = other.create("tiny@ab", "", Params(), 1.0)
    put_turn(other, number, KeptTurn(number=0, question="Heaps?", answer="A", state="done"), 1.0)
    other.close()
    async with running(Node(), (80, 24), history=path) as pilot:
        pane = pilot.app.query_one(ChatPane)
        await until(pilot, lambda: kept(pilot) is not None)
        await pilot.press("escape", "n", "o")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConversationsScreen))
        await pilot.press("enter")
        await until(pilot, lambda: pane.dialogue_id == number)
        assert pilot.app.screen.has_class("-page-chat")
        for kind, where, name in (("md", "", "heaps.md"), ("json", "x.json", "x.json")):
            pane.export(kind, where)
            await until(pilot, (tmp_path / name).exists)
        await shown(pilot, "written to")
        pane.export("md", "no/where")
        await shown(pilot, "not written")


async def test_a_damaged_file_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(b"nothing like a database" * 100)
    async with running(Node(), history=path) as pilot:
        await shown(pilot, "was damaged")
        assert path.with_name("chats.db.damaged-1").exists()
        assert kept(pilot).heads() == ()


async def test_a_disk_that_fills_is_told_once(tmp_path: Path) -> None:
    there = Node()
    async with running(there, history=tmp_path / "chats.db") as pilot:
        await ready(pilot, there)
        await until(pilot, lambda: kept(pilot) is not None)
        told: list[str] = []
        pilot.app.notify = lambda text, **_: told.append(text)
        kept(pilot)._database.execute("PRAGMA query_only = ON")
        await ask(pilot, there.first, "Why?")
        there.first.generations[0].events.put_nowait(TextDelta("So it is."))
        there.first.generations[0].events.put_nowait(finished())
        there.first.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, "So it is.")
        assert len(told) == 1
        assert "not kept any more" in told[0]
        await pilot.press("f8")
        await shown(pilot, "No conversation is kept yet.")
        await pilot.press("escape")
        await shown(pilot, "So it is.")
        kept(pilot)._database.execute("PRAGMA query_only = OFF")


async def test_what_another_app_writes_is_not_opened_until_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    other = Archive(path)
    number = other.create("tiny@ab", "", Params(), 1.0)
    put_turn(other, number, KeptTurn(number=0, question="their question", answer="ha"), 1.0)
    async with running(Node(), (80, 24), history=path) as pilot:
        await until(pilot, lambda: kept(pilot) is not None)
        for words in ("another app is writing", "half an answer"):
            await pilot.press("f8")
            await until(pilot, lambda: isinstance(pilot.app.screen, ConversationsScreen))
            await pilot.press("enter")
            await shown(pilot, words)
            assert ("half an answer" in screen_text(pilot)) == (words == "half an answer")
            done = KeptTurn(number=0, question="q", answer="half an answer", state="done")
            put_turn(other, number, done, 2.0)
    other.close()


def test_no_history_keeps_nothing_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DIFFUSE_NO_HISTORY", raising=False)
    assert _history(_parse([]), tmp_path) == tmp_path / "chats.db"
    assert _history(_parse(["demo", "--no-history"]), tmp_path) == ":memory:"
    for value, unwanted in (("1", True), ("yes", True), ("0", False), ("", False)):
        monkeypatch.setenv("DIFFUSE_NO_HISTORY", value)
        assert (_history(_parse([]), tmp_path) == ":memory:") == unwanted


def test_the_file_of_version_one_is_still_read(tmp_path: Path) -> None:
    """What was released must stay readable: its tables are written out here."""
    path = tmp_path / "chats.db"
    database = sqlite3.connect(path)
    database.executescript((Path(__file__).parent / "chats-v1.sql").read_text())
    database.close()
    archive = Archive(path)
    [head] = archive.heads("blue")
    dialogue = archive.load(head.id)
    assert (dialogue.title, dialogue.params.temperature) == ("Why is the sky blue?", 0.5)
    assert [turn.state for turn in dialogue.turns] == ["done", "cut"]
    archive.close()
