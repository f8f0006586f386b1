"""The archive of conversations, on real files."""

from __future__ import annotations

import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest
from tui_archive import put_turn

from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError
from diffuse_tui.archive.opening import ArchiveError
from diffuse_tui.archive.schema import VERSION
from diffuse_tui.archive.store import MAX_TURNS, NOT_KEPT, Archive, open_archive
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.parameters import Params

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "chats.db"


@pytest.fixture
def archive(path: Path) -> Iterator[Archive]:
    kept = Archive(path)
    yield kept
    kept.close()


def turn(number: int = 0, question: str = "Why?", answer: str = "So.", **more: str) -> KeptTurn:
    facts = {"state": "done", "model": "tiny@ab", "note": "3 tokens"} | more
    return KeptTurn(number=number, question=question, answer=answer, at=5.0, **facts)


def begun(archive: Archive, question: str = "Why?", at: float = 10.0, turns: int = 1) -> int:
    number = archive.create("tiny@ab", "", Params(), at)
    for index in range(turns):
        put_turn(archive, number, turn(index, question if index == 0 else f"{index}?"), at)
    return number


def sound(path: Path) -> bool:
    with sqlite3.connect(path) as database:
        found = database.execute("PRAGMA integrity_check").fetchall()
        kept = database.execute("SELECT count(*) FROM turn").fetchone()
    database.close()
    return found == [("ok",)] and kept is not None


def test_what_was_kept_is_there_after_opening_again(path: Path) -> None:
    archive = Archive(path)
    params = Params(temperature=0.5, stop=("\n", "é"), seed=7)
    number = archive.create("tiny@ab", "Be brief. \0 \ud800", params, 1.0)
    first = turn(0, "Warum [b]?\n\x1b[31m", "Dar\0um 日本 🙂")
    second = turn(1, "And?", "half", state="stopped")
    put_turn(archive, number, first, 2.0)
    put_turn(archive, number, turn(1, "And?", "ha", state="streaming"), 3.0)
    put_turn(archive, number, second, 4.0)
    archive.close()
    archive.close()

    again = Archive(path)
    assert (again.notice, again.cut) == ("", 0)
    assert again.load(number) == again.latest()
    assert again.load(number) == Dialogue(
        id=number,
        title="Warum [b]? ␛[31m",
        model="tiny@ab",
        system="Be brief. \0 \ufffd",
        params=params,
        created_at=1.0,
        changed_at=4.0,
        turns=(first, second),
    )
    assert again.load(number + 1) is None
    again.close()
    assert [file.name for file in path.parent.iterdir()] == ["chats.db"]
    assert sound(path)


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    Archive(path).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    archive = Archive(path)
    begun(archive)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    archive.close()


def test_settings_and_turns_change_in_place(archive: Archive) -> None:
    number = begun(archive, turns=4)
    assert archive.put_turns(number, [turn(2, "Other?")], 12.0, after=turn(3)) is True
    archive.set_system(number, "Rhyme.", 13.0)
    archive.set_params(number, Params(top_k=3), 14.0)
    archive.set_model(number, "big@cd", 15.0)
    dialogue = archive.load(number)
    assert dialogue is not None
    assert [each.question for each in dialogue.turns] == ["Why?", "1?", "Other?"]
    assert (dialogue.system, dialogue.params.top_k) == ("Rhyme.", 3)
    assert (dialogue.model, dialogue.changed_at) == ("big@cd", 15.0)
    archive.set_title(number, "x", 1.0)  # By a clock that was set back.
    put_turn(archive, number, turn(3), 2.0)
    assert archive.load(number).changed_at == 15.0


def test_a_conversation_is_called_by_its_first_words_until_it_is_named(archive: Archive) -> None:
    number = begun(archive, "  How does\n\n a heap work? ")
    assert archive.load(number).title == "How does a heap work?"
    put_turn(archive, number, turn(0, "How does a trie work?"), 11.0)
    assert archive.load(number).title == "How does a trie work?"
    archive.set_title(number, "  Trees\n and so ", 12.0)
    put_turn(archive, number, turn(0, "Something else"), 13.0)
    assert archive.load(number).title == "Trees and so"
    archive.set_title(number, " ", 14.0)
    assert archive.load(number).title == "Something else"


def test_what_is_longer_than_the_bounds_is_cut(archive: Archive) -> None:
    number = archive.create("m" * 999, "s" * 2_000_000, Params(), 1.0)
    put_turn(archive, number, turn(0, "q" * 1_000_001, "a" * 1_000_001, note="n" * 30_000), 1.0)
    dialogue = archive.load(number)
    assert (len(dialogue.model), len(dialogue.system)) == (300, 1_000_000)
    [kept] = dialogue.turns
    assert (len(kept.question), len(kept.answer), len(kept.note)) == (10**6, 10**6, 20_000)
    assert len(dialogue.title) <= 60


def test_only_the_newest_turns_of_an_endless_conversation_are_read(archive: Archive) -> None:
    number = begun(archive)
    archive._database.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO turn (conversation, number, state, at, question) "
        "SELECT ?, i, 'odd', 1.0, 'q' FROM n",
        (MAX_TURNS, number),
    )
    turns = archive.load(number).turns
    assert (turns[0].number, turns[-1].number) == (1, MAX_TURNS)
    assert turns[-1].state == "cut"  # A state of another version.


def test_deleted_conversations_come_back_until_the_app_ends(path: Path) -> None:
    archive = Archive(path)
    first, second = begun(archive, "secret one"), begun(archive, "two")
    token = archive.delete(first)
    assert archive.load(first) is None
    assert (archive.is_gone(first), archive.is_gone(second)) == (True, False)
    assert (archive.is_deleted(first), archive.is_deleted(second)) == (True, False)
    assert [head.id for head in archive.heads()] == [second]
    assert archive.heads("secret") == ()
    assert archive.restore(token)
    assert not archive.restore(token)
    assert len(archive.heads()) == 2
    archive.delete(first)
    archive.close()
    assert b"secret" not in path.read_bytes()

    again = Archive(path)
    assert not again.restore(token)
    assert [head.id for head in again.heads()] == [second]
    again.close()


def test_the_oldest_go_beyond_the_bound(archive: Archive) -> None:
    numbers = [begun(archive, f"q{index}", at=10.0 + index) for index in range(6)]
    put_turn(archive, numbers[0], turn(1, "again?"), 99.0)
    assert archive._remove_over(2) == 4
    assert [head.id for head in archive.heads()] == [numbers[0], numbers[5]]
    assert archive.heads("q1") == ()
    assert archive.size() > 0


def test_conversations_without_a_question_leave_nothing(path: Path) -> None:
    archive = Archive(path)
    archive.create("tiny@ab", "", Params(), 1.0)
    kept = begun(archive)
    assert [head.id for head in archive.heads()] == [kept]
    archive.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT id FROM conversation").fetchall() == [(kept,)]
    database.close()


def test_parameters_of_another_version_do_not_cost_the_conversation(archive: Archive) -> None:
    number = begun(archive)
    for odd in ("", "[", '{"temperature": "hot"}', '{"temperature": -1}', '{"top_k": 5, "x": 1}'):
        archive._database.execute("UPDATE conversation SET params = ?", (odd,))
        assert archive.load(number).params in (Params(), Params(top_k=5))


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    archive = Archive(path)
    begun(archive)
    archive.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="newer version of Diffuse") as refused:
        Archive(path)
    assert isinstance(refused.value, DiffuseError)
    assert refused.value.exit_code not in (0, EXIT_INTERRUPTED)
    memory = open_archive(path)
    assert "newer version" in memory.notice
    assert begun(memory) != NOT_KEPT
    memory.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", ["garbage", "torn", "empty page"])
def test_a_damaged_file_is_set_aside(path: Path, harm: str) -> None:
    for time in (1, 2):
        archive = Archive(path)
        begun(archive, turns=200)
        archive.close()
        data = path.read_bytes()
        harmed = {
            "garbage": b"no database at all " * 500,
            "torn": data[: len(data) // 2],
            "empty page": data[:8192] + bytes(8192) + data[16384:],
        }[harm]
        path.write_bytes(harmed)

        archive = open_archive(path)
        assert f"chats.db.damaged-{time}" in archive.notice
        aside = path.with_name(f"chats.db.damaged-{time}").read_bytes()
        assert aside[100:] == harmed[100:]  # The header counts changes.
        assert archive.heads() == ()
        number = begun(archive)
        archive.close()
        again = Archive(path)
        assert again.notice == ""
        assert again.load(number) is not None
        again.close()


def test_damage_met_on_the_way_is_told_and_mended_with_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffuse_tui.archive.opening.CHECKED_BYTES", 0)
    archive = Archive(path)
    begun(archive, turns=200)
    archive.close()
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))
    archive = open_archive(path)  # Whether that finds it or the list does.
    archive.heads()
    assert "damaged" in archive.notice or "malformed" in archive.notice
    archive.close()
    archive = open_archive(path)
    number = begun(archive)
    assert archive.load(number) is not None
    archive.close()


def test_where_nothing_can_be_written_the_app_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    archive = open_archive(tmp_path / "file" / "chats.db")
    assert "conversations cannot be kept" in archive.notice
    assert "--no-history" in archive.notice
    number = begun(archive)
    assert archive.load(number) is not None
    archive.close()
    assert archive.load(number) is None


def test_a_full_disk_is_told_once(archive: Archive) -> None:
    told: list[str] = []
    archive.on_trouble = told.append
    number = begun(archive)
    pages = archive._database.execute("PRAGMA page_count").fetchone()[0]
    archive._database.execute(f"PRAGMA max_page_count = {pages}")
    for index in range(1, 4):
        put_turn(archive, number, turn(index, "long" * 9999), 2.0)
    assert archive.create("m", "x" * 99_999, Params(), 3.0) == NOT_KEPT
    put_turn(archive, NOT_KEPT, turn(), 3.0)
    assert not archive.is_gone(NOT_KEPT)
    [text] = told
    assert "full" in text
    assert archive.notice == ""
    assert [each.number for each in archive.load(number).turns] == [0]
    archive._database.execute("PRAGMA max_page_count = 1000000")
    put_turn(archive, number, turn(1), 4.0)
    assert len(archive.load(number).turns) == 2


def test_a_whole_conversation_can_be_added(archive: Archive) -> None:
    number = begun(archive, turns=3)
    archive.set_title(number, "Named", 12.0)
    dialogue = archive.load(number)
    added = archive.add(dialogue)
    assert added != number
    copy = archive.load(added)
    assert copy.turns == dialogue.turns
    assert (copy.title, copy.changed_at, copy.created_at) == ("Named", 12.0, 10.0)
