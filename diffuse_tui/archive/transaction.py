"""One transaction over the archive's file: all of it or nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator


@contextmanager
def all_or_nothing(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction that writes; other apps wait for its end."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A full disk may have taken it back by itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
