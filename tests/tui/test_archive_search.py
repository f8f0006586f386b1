"""Finding conversations by words."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui_archive import put_turn

from diffuse_tui.archive import schema, search
from diffuse_tui.archive.opening import SUSPECT
from diffuse_tui.archive.store import Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def no_words(database: sqlite3.Connection) -> bool:
    database.execute("INSERT OR REPLACE INTO setting VALUES ('words', 'stale')")
    return False


@pytest.fixture(params=["index", "reading"])
def archive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """With FTS5, and as it is where SQLite has none."""
    if request.param == "reading":
        monkeypatch.setattr("diffuse_tui.archive.store.prepare_words", no_words)
    kept = Archive()
    yield kept
    kept.close()


def keep(archive: Archive, *texts: tuple[str, str], title: str = "", state: str = "done") -> int:
    number = archive.create("tiny@ab", "", Params(), 1.0)
    for index, (question, answer) in enumerate(texts):
        put_turn(
            archive,
            number,
            KeptTurn(number=index, question=question, answer=answer, state=state),
            float(number),
        )
    if title:
        archive.set_title(number, title, 1.0)
    return number


def found(archive: Archive, query: str) -> list[int]:
    return [head.id for head in archive.heads(query)]


def test_words_are_found_wherever_they_are(archive: Archive) -> None:
    heap = keep(archive, ("How does a heap work?", "A heap is a tree ..."), ("And a trie?", ""))
    bread = keep(archive, ("Which bread keeps?", "Rye bread\nwith SEEDS."))
    named = keep(archive, ("x", "y"), title="About the heap of sand")
    assert found(archive, "heap") == [named, heap]
    assert found(archive, "HEAP tr") == [heap]
    assert found(archive, "seed") == [bread]
    assert found(archive, "bread seeds") == [bread]
    assert found(archive, "heap bread") == []
    assert found(archive, "  ") == [named, bread, heap]
    assert archive.heads(limit=2)[1].id == bread
    assert [head.id for head in archive.heads("heap", limit=1)] == [named]


def test_a_snippet_shows_the_words_in_the_newest_turn_that_has_them(archive: Archive) -> None:
    keep(archive, ("one heap", "first"), ("x" * 300 + " the heap\nof it", "z" * 300), ("n", "n"))
    [head] = archive.heads("heap")
    assert head.snippet[0] == head.snippet[-1] == "…"
    assert "the heap of it" in head.snippet
    keep(archive, ("q", "a"), title="Heap")
    assert archive.heads("heap")[0].snippet == ""


def test_scripts_without_blanks_and_signs_are_found(archive: Archive) -> None:
    asked = keep(archive, ("什么是分布式系统", "一种系统"))
    code = keep(archive, ("what is a->b in C++?", "50%_off \\ 'quoted' \"so\""))
    assert found(archive, "分布") == [asked]
    for sign in ("->", "C++", "50%", "%_", "\\", "'quoted'", '"so"', "in C++?"):
        assert found(archive, sign) == [code], sign
    assert found(archive, "x%y") == []


def test_an_answer_that_runs_is_found_too(archive: Archive) -> None:
    number = keep(archive, ("why rain", "because cloud"), state="streaming")
    assert found(archive, "cloud") == [number]
    put_turn(archive, number, KeptTurn(number=0, question="why rain", answer="fog"), 2.0)
    assert found(archive, "cloud") == []
    put_turn(
        archive,
        number,
        KeptTurn(number=0, question="why", answer="sun" + " s" * 20_000, state="done"),
        3.0,
    )
    assert found(archive, "sun") == [number]
    assert found(archive, "fog") == found(archive, "rain") == []
    for answer in ("moon", "star"):
        turn = KeptTurn(number=0, question="why", answer=answer, state="done")
        put_turn(archive, number, turn, 4.0)
        assert found(archive, answer) == [number]
    assert found(archive, "moon") == found(archive, "sun") == []
    shorter = [KeptTurn(number=0, question="why", answer="moon", state="done")]
    for number_after in (1, 2):
        later = KeptTurn(number=number_after, question="sun", state="done")
        put_turn(archive, number, later, 5.0)
    last = archive.load(number).turns[-1]
    assert archive.put_turns(number, shorter, 6.0, after=last)
    assert found(archive, "sun") == []
    assert found(archive, "moon") == [number]


def test_accents_do_not_matter_to_the_index() -> None:
    archive = Archive()
    number = keep(archive, ("Où est le café à Zürich?", "là"))
    assert found(archive, "cafe zurich") == [number]
    archive.close()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    query=st.text(st.characters(codec=None), max_size=300)
    | st.text("\"'*()^:-+{}[]NEAROTD %_\\\0\ud800", max_size=40),
    text=st.text(st.characters(codec=None), max_size=300),
)
def test_any_query_is_harmless(archive: Archive, query: str, text: str) -> None:
    number = keep(archive, (text, query))
    assert archive.notice == ""
    heads = archive.heads(query)
    assert archive.notice == ""
    assert all(len(head.snippet) < 200 and "\n" not in head.snippet for head in heads)
    stored = archive.load(number).turns[0].answer
    assert stored == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in query)


@settings(max_examples=100, deadline=None)
@given(
    words=st.lists(st.text("abcäöü12", min_size=1, max_size=8), min_size=1, max_size=4),
    other=st.text("xyz ", max_size=30),
)
def test_every_word_of_a_text_finds_it(words: list[str], other: str) -> None:
    archive = Archive()
    number = keep(archive, (f"{other} {' '.join(words)}", other))
    keep(archive, (other, other))
    assert found(archive, " ".join(words)) == [number]
    archive.close()


def test_a_file_used_without_the_index_is_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chats.db"
    archive = Archive(path)
    changed = keep(archive, ("heap", ""))
    untouched = keep(archive, ("why", "leaf"))
    archive.close()
    with monkeypatch.context() as patch:
        patch.setattr("diffuse_tui.archive.store.prepare_words", no_words)
        archive = Archive(path)
        put_turn(archive, changed, KeptTurn(number=0, question="tree", state="done"), 2.0)
        added = keep(archive, ("tree too", ""))
        archive.close()
    archive = Archive(path)
    assert found(archive, "heap") == []
    assert found(archive, "tree") == [added, changed]
    assert found(archive, "leaf") == [untouched]
    archive._database.execute("INSERT INTO turn_words (turn_words) VALUES ('integrity-check')")
    assert archive.notice == ""
    archive.close()


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    archive = Archive(path)
    number = keep(archive, ("heap", ""))
    archive._database.execute("DELETE FROM turn_words_data WHERE id > 10")
    archive.close()
    archive = Archive(path)
    archive.heads("heap")
    assert "malformed" in archive.notice
    assert path.with_name(path.name + SUSPECT).exists()
    archive.close()
    archive = Archive(path)
    assert archive.notice == ""
    assert found(archive, "heap") == [number]
    archive.close()
    assert not path.with_name(path.name + SUSPECT).exists()


def test_one_search_indexes_so_much_and_reads_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = Archive()
    monkeypatch.setattr("diffuse_tui.archive.turns.INDEX_CHARS", 0)
    monkeypatch.setattr(search, "INDEXED_AT_ONCE", 3)
    numbers = [keep(archive, ("why", "heap")) for _ in range(5)]
    for left in (2, 0):
        assert found(archive, "heap") == numbers[::-1]
        new = archive._database.execute("SELECT count(*) FROM turn WHERE indexed = 0").fetchone()
        assert new == (left,)
    archive.close()


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), min_size=1))
def test_words_are_never_read_as_a_language(words: list[str]) -> None:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
    query = search._match(tuple(word.replace("\0", "0") for word in words))
    assert database.execute("SELECT x FROM t WHERE t MATCH ?", (query,)).fetchall() == []
    database.close()


def test_probing_for_the_index_leaves_nothing() -> None:
    database = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(database)
    assert schema.prepare_words(database)
    assert schema.prepare_words(database)
    assert database.execute("SELECT count(*) FROM temp.sqlite_master").fetchone() == (0,)
    database.close()
