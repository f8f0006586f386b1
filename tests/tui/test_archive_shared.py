"""Several apps on one archive, and apps that end without a word."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tui_archive import put_turn

from diffuse_tui.archive.store import NOT_KEPT, Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params

_ROOT = Path(__file__).parents[2]

_WRITER = """
import sys
sys.path.insert(0, "tests/tui")
from tui_archive import put_turn
from diffuse_tui.archive.store import NOT_KEPT, Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params

archive = Archive(sys.argv[1])
assert archive.notice == "", archive.notice
number = archive.create("tiny@ab", "", Params(), 1.0)
turn = step = 0
while True:
    step += 1
    done = step % 5 == 0
    state, answer = "done" if done else "streaming", f"{step} " * (step * 37 % 9000)
    written = KeptTurn(
        number=turn, question=f"q{turn}", at=float(step), answer=answer, state=state
    )
    put_turn(archive, number, written, float(step))
    print(number, turn, step, flush=True)
    turn += done
"""


def streaming(number: int = 0) -> KeptTurn:
    return KeptTurn(number=number, question="q", answer="half an", state="streaming")


def test_what_one_app_writes_the_other_reads(tmp_path: Path) -> None:
    one, other = Archive(tmp_path / "chats.db"), Archive(tmp_path / "chats.db")
    number = one.create("tiny@ab", "", Params(), 1.0)
    put_turn(one, number, KeptTurn(number=0, question="heap", state="done"), 1.0)
    assert [head.id for head in other.heads("heap")] == [number]
    put_turn(other, number, KeptTurn(number=1, question="more", state="done"), 2.0)
    assert len(one.load(number).turns) == 2
    token = one.delete(number)
    assert other.heads() == ()
    assert not other.restore(token)
    other.close()
    assert one.restore(token)
    one.close()


def test_only_answers_of_apps_that_are_gone_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    one = Archive(path)
    number = one.create("tiny@ab", "", Params(), 1.0)
    put_turn(one, number, streaming(), 1.0)
    other = Archive(path)
    assert (other.cut, other.mark_cut()) == (0, 0)
    assert other.load(number).turns[0].state == "streaming"
    put_turn(one, number, streaming(1), 2.0)
    # As if the process had ended: the system lets go of its locks, and nothing else happens.
    os.close(one._mark._handle)
    one._database.close()
    third = Archive(path)
    assert third.cut == 2
    assert [turn.state for turn in other.load(number).turns] == ["cut", "cut"]
    assert third.load(number).turns[0].answer == "half an"
    third.close()
    other.close()
    assert [file.name for file in tmp_path.iterdir()] == ["chats.db"]


def test_what_an_app_deleted_that_is_gone_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    one = Archive(path)
    number = one.create("tiny@ab", "", Params(), 1.0)
    put_turn(one, number, KeptTurn(number=0, question="secret", state="done"), 1.0)
    one.delete(number)
    os.close(one._mark._handle)
    one._database.close()
    Archive(path).close()
    assert b"secret" not in path.read_bytes()


def test_many_apps_open_and_write_at_once(tmp_path: Path) -> None:
    path, kept, told = tmp_path / "chats.db", [], []

    def use() -> None:
        archive = Archive(path)
        archive.on_trouble = told.append
        number = archive.create("tiny@ab", "", Params(), 1.0)
        for index in range(10):
            put_turn(archive, number, streaming(index), 1.0)
        kept.append((number, archive.cut, archive.mark_cut()))
        archive.close()

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert told == []
    assert len({number for number, *_ in kept}) == 6
    last = Archive(path)
    assert len(last.heads()) == 6
    assert all(len(last.load(head.id).turns) == 10 for head in last.heads())
    last.close()


def test_another_program_that_holds_the_file_is_told_and_outlived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffuse_tui.archive.opening.BUSY_S", 0.01)
    archive = Archive(tmp_path / "chats.db")
    number = archive.create("tiny@ab", "", Params(), 1.0)
    holder = sqlite3.connect(tmp_path / "chats.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    put_turn(archive, number, streaming(), 2.0)
    assert "locked" in archive.notice
    holder.execute("ROLLBACK")
    holder.close()
    put_turn(archive, number, streaming(), 3.0)
    assert len(archive.load(number).turns) == 1
    archive.close()


def test_a_search_that_cannot_index_reads_and_leaves_no_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffuse_tui.archive.opening.BUSY_S", 0.01)
    monkeypatch.setattr("diffuse_tui.archive.turns.INDEX_CHARS", 0)
    archive = Archive(tmp_path / "chats.db")
    number = archive.create("tiny@ab", "", Params(), 1.0)
    done = KeptTurn(number=0, question="heap", state="done")
    put_turn(archive, number, done, 2.0)
    holder = sqlite3.connect(tmp_path / "chats.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert [head.id for head in archive.heads("heap")] == [number]
    holder.execute("ROLLBACK")
    holder.close()
    assert archive.put_turns(number, [done], 3.0, after=done)
    assert archive.notice == ""
    archive.close()


def test_turns_of_another_app_are_never_overwritten(tmp_path: Path) -> None:
    one, other = Archive(tmp_path / "chats.db"), Archive(tmp_path / "chats.db")
    number = one.create("tiny@ab", "", Params(), 1.0)
    first, mine, theirs = (
        KeptTurn(number=n, question=q, state="done", at=at)
        for n, q, at in ((0, "first", 1.0), (1, "mine", 2.0), (1, "theirs", 3.0))
    )
    assert other.put_turns(number, [first], 1.0, after=first) is False
    assert one.put_turns(number, [first], 1.0, after=None) is True
    assert one.put_turns(number, [mine], 2.0, after=first) is True
    assert other.put_turns(number, [theirs], 3.0, after=first) is False
    assert one.load(number).turns == (first, mine)
    assert one.load(number).changed_at == 2.0
    # Answered anew: the number is the same, the time is not.
    anew = KeptTurn(number=0, question="first", answer="again", state="done", at=4.0)
    assert other.put_turns(number, [anew], 4.0, after=mine) is True
    assert one.load(number).turns == (anew,)
    assert one.put_turns(number, [first, mine], 5.0, after=first) is False
    other.delete(number)
    assert one.put_turns(number, [mine], 6.0, after=anew) is False
    assert one.put_turns(NOT_KEPT, [first], 6.0, after=None) is None
    assert one.notice == ""
    one.close()
    other.close()


@pytest.mark.slow
def test_an_app_that_is_killed_loses_nothing_that_it_put(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    for times in range(12):
        number, turn, step = _killed_after(path, 3 + 40 * times % 173)
        with sqlite3.connect(path) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.close()
        archive = Archive(path)
        assert archive.notice == ""
        kept = archive.load(number).turns
        # The very last put may be complete without having been told.
        last = int(kept[turn].at)
        assert last in (step, step + 1)
        assert kept[turn].answer == f"{last} " * (last * 37 % 9000)
        assert {each.state for each in kept} <= {"done", "cut"}
        assert archive.cut == (kept[-1].state == "cut")
        archive._database.execute("INSERT INTO turn_words (turn_words) VALUES ('integrity-check')")
        archive.close()
    assert [file.name for file in tmp_path.iterdir()] == ["chats.db"]


def _killed_after(path: Path, puts: int) -> tuple[int, int, int]:
    """Kill a process that writes; the conversation, turn and step that it told last."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=_ROOT
    )
    with writer:
        lines = [writer.stdout.readline() for _ in range(puts)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.read().splitlines(keepends=True)
    number, turn, step = next(line for line in reversed(lines) if line.endswith("\n")).split()
    return int(number), int(turn), int(step)
