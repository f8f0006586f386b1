"""What is done to the archive's file as a whole: leftovers of apps that are gone, and bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_tui.archive.search import forget_words

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Set as AbstractSet


def cut_left(database: sqlite3.Connection, running: AbstractSet[str]) -> int:
    """Answers that streamed into apps that are gone are `cut`; how many there were."""
    streaming = database.execute("SELECT id, owner FROM turn WHERE state = 'streaming'").fetchall()
    left = [(turn,) for turn, owner in streaming if owner not in running]
    database.executemany("UPDATE turn SET state = 'cut', owner = '' WHERE id = ?", left)
    return len(left)


def purge_left(database: sqlite3.Connection, running: AbstractSet[str], *, words: bool) -> int:
    """Remove what apps that are gone had deleted; how many conversations."""
    deleted = database.execute(
        "SELECT id, deleted_by FROM conversation WHERE deleted_by IS NOT NULL"
    ).fetchall()
    return sum(
        remove(database, "id = ?", (number,), words=words)
        for number, owner in deleted
        if owner not in running
    )


def leave_no_trace(database: sqlite3.Connection, *, words: bool) -> None:
    """Give back what removed conversations took: their words in the index, pages, the journal."""
    if words:
        database.execute("INSERT INTO turn_words (turn_words) VALUES ('optimize')")
    database.execute("PRAGMA incremental_vacuum").fetchall()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def remove(
    database: sqlite3.Connection, where: str, values: tuple[Any, ...], *, words: bool
) -> int:
    """Remove conversations for good; how many. `where` is our own text, never a user's."""
    if words:
        forget_words(
            database,
            f"conversation IN (SELECT id FROM conversation WHERE {where})",  # noqa: S608
            values,
        )
    return database.execute(
        f"DELETE FROM conversation WHERE {where}",  # noqa: S608
        values,
    ).rowcount
