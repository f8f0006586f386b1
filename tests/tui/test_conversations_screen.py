"""The list of kept conversations: search, open, rename, delete with undo, export, import."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from textual.events import Key
from textual.widgets import Input
from tui_archive import put_turn
from tui_driver import ask, ready, running, screen_text, shown, until
from tui_fakes import Node, finished

from diffuse_tui.archive.store import Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.screens.conversations import ConversationsScreen
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.line_table import LineTable

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

TEXTS = (
    ("How does a heap work?", "A heap is a tree in an array."),
    ("Which bread keeps longest?", "Rye bread with seeds, I think."),
    ("What is [b]Conway's[/b] game?", "\x1b[31m Cells that live and die."),
)

KEYS_TYPING = ["F1", "Help", "esc", "Back", "^Q", "Quit"]


def filled(path: Path, *texts: tuple[str, str]) -> list[int]:
    archive, numbers = Archive(path), []
    for index, (question, answer) in enumerate(texts):
        numbers.append(archive.create("tiny-llama@ab", "", Params(), 1000.0 + index))
        put_turn(
            archive,
            numbers[-1],
            KeptTurn(number=0, question=question, answer=answer, state="done"),
            1000.0 + index,
        )
    archive.close()
    return numbers


async def opened(pilot: Pilot[None]) -> ConversationsScreen:
    await until(pilot, lambda: pilot.app.archive is not None)
    await pilot.press("f8")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConversationsScreen))
    await pilot.pause()
    return pilot.app.screen


def titles(screen: ConversationsScreen) -> list[str]:
    return [screen._heads[key].title for key in screen._table.keys]


@pytest.mark.parametrize("size", [(120, 40), (60, 18)])
async def test_the_list_and_what_is_found_fit(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "chats.db"
    filled(path, *TEXTS)
    async with running(Node(), size, history=path) as pilot:
        screen = await opened(pilot)
        text = screen_text(pilot)
        assert "Conversations" in text
        assert "What is [b]Conway's" in text
        assert "3 conversations ·" in text
        assert ("tiny-llama" in text) == (size == (120, 40))
        assert titles(screen)[-1] == TEXTS[0][0]
        await pilot.press("slash")
        screen.query_one("#search", Input).value = "bread se"
        await shown(pilot, "with “bread se”")
        assert "Which bread keeps longest? Rye" in screen_text(pilot)
        assert titles(screen) == [TEXTS[1][0]]


async def test_searching_and_opening(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    numbers = filled(path, *TEXTS)
    async with running(Node(), (80, 24), history=path) as pilot:
        screen = await opened(pilot)
        await pilot.press("slash", *"rye z")
        await shown(pilot, "Nothing has “rye z”.")
        await pilot.press("escape")
        await shown(pilot, "3 conversations ·")
        assert isinstance(screen.focused, LineTable)
        await pilot.press("slash")
        screen.query_one("#search", Input).value = "Cells"
        await pilot.press("enter")
        await shown(pilot, "␛[31m Cells")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert pilot.app.query_one(ChatPane).dialogue_id == numbers[2]
        await shown(pilot, "Cells that live and die.")

        screen = await opened(pilot)
        await shown(pilot, "● What is")
        await pilot.press("d", "escape")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert pilot.app.query_one(ChatPane).dialogue_id is None
        await pilot.pause()
        assert "Cells that live" not in screen_text(pilot)


async def test_the_conversation_that_is_answered_is_not_deleted(tmp_path: Path) -> None:
    there = Node()
    async with running(there, (80, 24), history=tmp_path / "chats.db") as pilot:
        await ready(pilot, there)
        await until(pilot, lambda: pilot.app.archive is not None)
        await ask(pilot, there.first, "Why is the sky blue?")
        screen = await opened(pilot)
        await shown(pilot, "● Why is the sky blue?")
        await pilot.press("d")
        await shown(pilot, "an answer is being written in it")
        assert len(titles(screen)) == 1
        there.first.generations[0].events.put_nowait(finished())
        there.first.generations[0].events.put_nowait(None)
        await until(pilot, lambda: not pilot.app.query_one(ChatPane).busy)
        await pilot.press("d", "n")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert pilot.app.query_one(ChatPane).dialogue_id is None


async def test_renaming_deleting_and_bringing_back(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    numbers = filled(path, *TEXTS)
    async with running(Node(), (80, 24), history=path) as pilot:
        screen = await opened(pilot)
        for title, value in (("a\x1bb", "a␛b"), ("", TEXTS[2][0])):
            pilot.app.archive.set_title(screen._head.id, title, 1.0)
            screen._list()
            await pilot.press("e")
            assert screen.query_one("#asked", Input).value == value
            await pilot.press("escape")
        await pilot.press("j", "e")
        assert screen.query_one("#asked", Input).value == TEXTS[1][0]
        for key, letter in (("ctrl+u", None), ("a", "["), ("b", "b"), ("c", "]"), ("enter", None)):
            pilot.app.post_message(Key(key, letter))  # All at once, as from a lagging terminal.
        await shown(pilot, "renamed")
        assert titles(screen)[1] == "[b]"
        assert isinstance(screen.focused, LineTable)
        await pilot.press("e")
        await until(pilot, lambda: screen_text(pilot).split("\n")[-1].split() == KEYS_TYPING)
        await pilot.press("x", "escape")
        assert titles(screen)[1] == "[b]"
        await pilot.press("u")
        await shown(pilot, "nothing was deleted here")

        await pilot.press("d", "d")
        await shown(pilot, "u brings it back · 2 deleted")
        assert titles(screen) == [TEXTS[2][0]]
        await pilot.press("u")
        await shown(pilot, f"“{TEXTS[0][0]}” is back")
        await pilot.press("u")
        assert len(titles(screen)) == 3
        assert screen._table.cursor_key == str(numbers[1])
        await pilot.press("d")
    archive = Archive(path)
    assert [head.id for head in archive.heads()] == [numbers[2], numbers[0]]
    archive.close()


async def test_exporting_and_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chats.db"
    filled(path, TEXTS[0])
    async with running(Node(), (80, 24), history=path) as pilot:
        screen = await opened(pilot)
        await pilot.press("x")
        assert screen.query_one("#asked", Input).value == "how-does-a-heap-work.md"
        await pilot.press("enter")
        await shown(pilot, "written to")
        assert "A heap is a tree" in (tmp_path / "how-does-a-heap-work.md").read_text()
        await pilot.press("x", "enter")
        await until(pilot, (tmp_path / "how-does-a-heap-work-2.md").exists)
        asked = screen.query_one("#asked", Input)
        await pilot.press("X")
        assert asked.value == "how-does-a-heap-work.json"
        asked.value = "no/where.json"
        await pilot.press("enter")
        await shown(pilot, "not written")
        asked.value = "out.json"
        await pilot.press("enter")
        await until(pilot, (tmp_path / "out.json").exists)
        assert json.loads((tmp_path / "out.json").read_text())["version"] == 1

        await pilot.press("i")
        asked.value = "chats.db"
        await pilot.press("enter")
        await shown(pilot, "no conversation of Diffuse")
        asked.value = "out.json"
        await pilot.press("enter")
        await shown(pilot, "it is in the list")
        assert titles(screen) == [TEXTS[0][0]] * 2


async def test_nothing_kept_yet_and_a_new_conversation(tmp_path: Path) -> None:
    async with running(Node(), (60, 18), history=tmp_path / "chats.db") as pilot:
        screen = await opened(pilot)
        await shown(pilot, "No conversation is kept yet. n begins one.")
        await pilot.press("enter", "d", "e", "x", "j")
        assert pilot.app.screen is screen
        await pilot.press("n")
        await until(pilot, lambda: pilot.app.screen is not screen)
    async with running(Node(), (60, 18)) as pilot:
        await pilot.press("f8")
        await shown(pilot, "Conversations are not kept")


async def test_thousands_of_conversations_stay_smooth(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path, TEXTS[0])
    archive = Archive(path)
    archive._database.execute(
        "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 5008) "
        "INSERT INTO conversation (id, title, created, changed) SELECT i, 'c' || i, i, i FROM n"
    )
    archive._database.execute(
        "INSERT INTO turn (conversation, number, state, at, question) "
        "SELECT id, 0, 'done', 1.0, 'word' || id FROM conversation WHERE id >= 10"
    )
    archive.close()
    async with running(Node(), (80, 24), history=path) as pilot:
        screen = await opened(pilot)
        await shown(pilot, "5000 conversations")
        await pilot.press("G")
        assert screen._table.cursor_row == 4999
        await pilot.press("slash")
        screen.query_one("#search", Input).value = "word500"
        await pilot.press("enter")
        await shown(pilot, "word5000")
        assert len(titles(screen)) == 10
