"""Turns in the archive's file: put in, taken out. Each within a transaction of the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.archive import rows, search
from diffuse_tui.presenter.titles import first_words

if TYPE_CHECKING:
    import sqlite3

    from diffuse_tui.presenter.dialogue import KeptTurn

INDEX_CHARS = 20_000
"""Answers up to this long enter the index when they are complete; longer ones with a search."""


def put(
    database: sqlite3.Connection, number: int, turn: KeptTurn, owner: str, *, words: bool
) -> int:
    """Keep a turn of conversation `number`, in the place of one with the same number; its row."""
    if words:
        search.forget_words(database, "conversation = ? AND number = ?", (number, turn.number))
    [(row,)] = database.execute(
        f"INSERT INTO turn (conversation, owner, {rows.TURN}) "  # noqa: S608 - our names
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation, number) DO UPDATE "
        "SET owner = excluded.owner, question = excluded.question, indexed = 0, "
        "answer = excluded.answer, state = excluded.state, model = excluded.model, "
        "note = excluded.note, at = excluded.at RETURNING id",
        (number, owner if turn.state == "streaming" else "", *rows.turn_values(turn)),
    ).fetchall()
    if turn.number == 0:
        database.execute(
            "UPDATE conversation SET title = ? WHERE id = ? AND named = 0",
            (rows.storable(first_words(turn.question), rows.MAX_NAME), number),
        )
    return int(row)


def index(database: sqlite3.Connection, row: int, turn: KeptTurn) -> None:
    """Put a turn that was just kept into the index of words, if it is complete and short."""
    short = len(turn.question) + len(turn.answer) <= INDEX_CHARS
    if short and turn.state != "streaming":
        search.index_turn(database, row)


def drop_after(database: sqlite3.Connection, number: int, last: int, *, words: bool) -> None:
    """Forget the turns of conversation `number` that come after turn `last`."""
    where, values = "conversation = ? AND number > ?", (number, last)
    if words:
        search.forget_words(database, where, values)
    database.execute(f"DELETE FROM turn WHERE {where}", values)  # noqa: S608 - our own text


def newest(database: sqlite3.Connection, number: int) -> tuple[int, float] | None:
    """Number and time of the newest turn of conversation `number`; None without one."""
    found: tuple[int, float] | None = database.execute(
        "SELECT number, at FROM turn WHERE conversation = ? ORDER BY number DESC LIMIT 1",
        (number,),
    ).fetchone()
    return found
