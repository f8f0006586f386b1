"""Finds conversations by words: through the index of words where that can answer, else by reading.

Nothing of what is searched for is ever read as a language: no character of it can do harm.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from contextlib import suppress
from typing import Any, NamedTuple

from diffuse_tui.archive.transaction import all_or_nothing

MAX_QUERY = 200
MAX_WORDS = 8
INDEXED_AT_ONCE = 2000
"""Turns that one search puts into the index at most before it answers; the rest is read."""

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts, by the names of their characters, that put no blanks between words: there the index
holds whole sentences, so texts are read instead."""

LOOKED_AT = 5000
"""Turns with the words that are looked at, the newest: more would be found than anyone reads."""

_UNINDEXED = "turn INDEXED BY turn_unindexed WHERE indexed = 0 AND"
"""Named, for SQLite would rather go through all turns in the order of the groups."""

_BY_WORDS = (
    "SELECT conversation, max(number) FROM turn WHERE id IN (SELECT rowid FROM turn_words "
    "WHERE turn_words MATCH ? ORDER BY rowid DESC LIMIT ?) GROUP BY conversation"
)


class Found(NamedTuple):
    """A conversation where the words are, and the last turn that has them; -1: its title has."""

    conversation: int
    number: int


def words_of(query: str) -> tuple[str, ...]:
    """The words of a query, bounded in number and length; none when it is blank."""
    plain = query[:MAX_QUERY].replace("\0", " ")
    plain = plain.encode("utf-8", "replace").decode("utf-8")
    return tuple(plain.split()[:MAX_WORDS])


def find(database: sqlite3.Connection, words: tuple[str, ...], *, indexed: bool) -> list[Found]:
    """Every conversation with a turn that has all `words`, or whose title has them.

    Args:
        database: The archive's file.
        words: At least one; where the index answers, two letters that a word begins with will do.
        indexed: Whether this SQLite has FTS5.
    """
    numbers: dict[int, int] = {}
    where, values = _like("title", words)
    # S608: column names and placeholders only; what is searched for travels as values.
    for (found,) in database.execute(
        f"SELECT id FROM conversation WHERE {where}",  # noqa: S608
        values,
    ):
        numbers[found] = -1
    if indexed and all(_in_index(word) for word in words):
        _index_new(database)
        numbers.update(database.execute(_BY_WORDS, (_match(words), LOOKED_AT)).fetchall())
        # Of answers that run, or were too many to index at once.
        numbers.update(_read(database, words, _UNINDEXED))
    else:
        numbers.update(_read(database, words, "turn WHERE"))
    return [Found(found, number) for found, number in numbers.items()]


def snippet(text: str, words: tuple[str, ...], around: int = 60) -> str:
    """A stretch of `text` on one line with the first of `words` that is in it; else its start."""
    low = text.casefold()
    if len(low) != len(text):
        low = text.lower() if len(text.lower()) == len(text) else text
    places = [place for word in words if (place := low.find(word.casefold())) >= 0]
    start = max(0, min(places, default=0) - around // 4)
    cut = " ".join(text[start : start + 2 * around].split())
    return ("…" if start else "") + cut + ("…" if start + 2 * around < len(text) else "")


def index_turn(database: sqlite3.Connection, turn: int) -> None:
    """Put a turn into the index."""
    database.execute(
        "INSERT INTO turn_words (rowid, question, answer) "
        "SELECT id, question, answer FROM turn WHERE id = ? AND indexed = 0",
        (turn,),
    )
    database.execute("UPDATE turn SET indexed = 1 WHERE id = ?", (turn,))


def forget_words(database: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> None:
    """Take turns out of the index before they change or go. `where` is our own text."""
    database.execute(
        "INSERT INTO turn_words (turn_words, rowid, question, answer) "  # noqa: S608
        f"SELECT 'delete', id, question, answer FROM turn WHERE indexed = 1 AND {where}",
        values,
    )


def _index_new(database: sqlite3.Connection) -> None:
    new = database.execute(
        "SELECT id FROM turn WHERE indexed = 0 AND state <> 'streaming' ORDER BY id DESC LIMIT ?",
        (INDEXED_AT_ONCE,),
    ).fetchall()
    if not new:
        return
    # Where it cannot be written now, as another app writes or the disk is full, it is read.
    with suppress(sqlite3.OperationalError), all_or_nothing(database):
        for (turn,) in new:
            index_turn(database, turn)


def _in_index(word: str) -> bool:
    """Whether the index knows such words: letters and digits, of scripts that have blanks."""
    return word.isalnum() and not any(
        unicodedata.name(letter, "").startswith(_UNSPACED) for letter in word if letter > "\u0e00"
    )


def _match(words: tuple[str, ...]) -> str:
    """A query in FTS5's language in which the words are nothing but strings.

    A single letter stands for itself: words that begin with it are in every text, and to gather
    them takes seconds.
    """
    quoted = ('"' + word.replace('"', '""') + '"' for word in words)
    return " AND ".join(word if len(word) == len('"x"') else f"{word} *" for word in quoted)


def _like(columns: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    values = []
    for word in words:
        plain = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values.append(f"%{plain}%")
    return " AND ".join(f"{columns} LIKE ? ESCAPE '\\'" for _ in words), tuple(values)


def _read(database: sqlite3.Connection, words: tuple[str, ...], source: str) -> dict[int, int]:
    where, values = _like("(question || char(10) || answer)", words)
    rows = database.execute(
        f"SELECT conversation, max(number) FROM {source} {where} "  # noqa: S608
        "GROUP BY conversation",
        values,
    )
    return dict(rows.fetchall())
