"""The tables of the archive's file, and how an older file becomes one of today."""

from __future__ import annotations

import sqlite3

VERSION = 1
"""What a file of today says in `user_version`."""

_FIRST = """
CREATE TABLE conversation (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  title TEXT NOT NULL DEFAULT '',
  named INTEGER NOT NULL DEFAULT 0,
  model TEXT NOT NULL DEFAULT '',
  system TEXT NOT NULL DEFAULT '',
  params TEXT NOT NULL DEFAULT '{}',
  created REAL NOT NULL,
  changed REAL NOT NULL,
  deleted_by TEXT
);
CREATE INDEX conversation_changed ON conversation (changed);
CREATE TABLE turn (
  id INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  state TEXT NOT NULL,
  owner TEXT NOT NULL DEFAULT '',
  indexed INTEGER NOT NULL DEFAULT 0,
  at REAL NOT NULL,
  model TEXT NOT NULL DEFAULT '',
  note TEXT NOT NULL DEFAULT '',
  question TEXT NOT NULL,
  answer TEXT NOT NULL DEFAULT '',
  UNIQUE (conversation, number)
);
CREATE INDEX turn_streaming ON turn (id) WHERE state = 'streaming';
CREATE INDEX turn_unindexed ON turn (id) WHERE indexed = 0;
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST,)
"""`MIGRATIONS[n]` makes version n + 1 of version n. What was released is never edited."""

_WORDS = """
CREATE VIRTUAL TABLE IF NOT EXISTS turn_words USING fts5(
  question, answer, content='turn', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
)
"""


def version_of(database: sqlite3.Connection) -> int:
    """Which version of the tables the file has; 0 is a new one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def migrate(database: sqlite3.Connection) -> None:
    """Bring the tables to `VERSION`, in one transaction: a crash leaves the file as it was."""
    if version_of(database) >= VERSION:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another app may have done it while this one waited.
        for step in MIGRATIONS[version_of(database) :]:
            for statement in step.split(";"):
                if statement.strip():
                    database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


def prepare_words(database: sqlite3.Connection) -> bool:
    """Make the index of words ready; False where this SQLite has no FTS5.

    An app without FTS5 changes turns and not their index: it leaves a mark, and the next one that
    has FTS5 begins the index again.
    """
    try:
        database.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(x)")
    except sqlite3.OperationalError:
        database.execute("INSERT OR REPLACE INTO setting VALUES ('words', 'stale')")
        return False
    database.execute("DROP TABLE temp.probe")
    stale = database.execute("SELECT 1 FROM setting WHERE name = 'words'").fetchone()
    if stale is None:
        database.execute(_WORDS)
        return True
    database.execute("BEGIN IMMEDIATE")
    database.execute("DROP TABLE IF EXISTS turn_words")
    database.execute(_WORDS)
    database.execute("UPDATE turn SET indexed = 0")
    database.execute("DELETE FROM setting WHERE name = 'words'")
    database.execute("COMMIT")
    return True
