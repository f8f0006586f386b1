"""Opens the archive's file: private, sound, of a version that is understood."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from diffuse_core.errors import DiffuseError
from diffuse_tui.archive.schema import VERSION, migrate, version_of

MEMORY = ":memory:"
BUSY_S = 2.0
"""How long a call waits for another app that writes."""
CHECKED_BYTES = 16 * 2**20
"""Files up to this size are read through for damage on opening: some 10 ms."""
SUSPECT = ".suspect"
"""Ending of a mark: damage was met while the file was in use, so read it through next time."""
MAX_DAMAGED = 1000

_ODD = (
    "SELECT 1 FROM turn WHERE typeof(number) <> 'integer' OR typeof(at) <> 'real' OR 'blob' IN "
    "(typeof(question), typeof(answer), typeof(state), typeof(model), typeof(note)) LIMIT 1",
    "SELECT 1 FROM conversation WHERE typeof(created) <> 'real' OR typeof(changed) <> 'real' OR "
    "'blob' IN (typeof(title), typeof(model), typeof(system), typeof(params)) LIMIT 1",
)
"""Find values of types that the app never writes, and SQLite lets others write."""

_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_size_limit = 8388608",
)


class ArchiveError(DiffuseError):
    """Conversations cannot be kept in this file; the message tells why and what to do."""


class Opened(NamedTuple):
    """The file, and what its user should know of the opening: empty when nothing."""

    database: sqlite3.Connection
    notice: str


def open_database(path: str) -> Opened:
    """Open or create the file at `path`; `:memory:` keeps nothing on disk.

    A damaged file is set aside and a new one begun.

    Raises:
        ArchiveError: it is of a newer version, or cannot be opened or written.
    """
    if path == MEMORY:
        return Opened(_connect(path), "")
    file = Path(path)
    try:
        _make_private(file)
        try:
            return Opened(_connect_checked(file), "")
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            aside = _set_aside(file)
        _make_private(file)
        told = f"the file of conversations was damaged: it is {aside} now, and a new one was begun"
        return Opened(_connect_checked(file), told)
    except (OSError, sqlite3.Error) as error:
        raise ArchiveError(
            f"conversations cannot be kept in {file} ({error}); make its directory writable, "
            "free some space, or start with --no-history"
        ) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file is no sound database (and not: busy, full, forbidden)."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def suspect(path: str) -> None:
    """Have the file read through when it is opened next."""
    if path != MEMORY:
        try:
            Path(path + SUSPECT).touch(0o600)
        except OSError:
            return  # A disk that takes no mark has told its trouble already.


def _make_private(file: Path) -> None:
    """Conversations are for nobody else's eyes; SQLite gives its other files the same mode."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(file, flags, 0o600)
    try:
        if os.name == "posix" and os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _connect_checked(file: Path) -> sqlite3.Connection:
    mark = Path(str(file) + SUSPECT)
    database = _connect(str(file))
    try:
        if mark.exists() or file.stat().st_size <= CHECKED_BYTES:
            _check(database)
        if mark.exists():
            # The tables are sound: it was the index, which SQLite does not look into here.
            database.execute("INSERT OR REPLACE INTO setting VALUES ('words', 'stale')")
            mark.unlink()
    except BaseException:
        database.close()
        raise
    return database


def _check(database: sqlite3.Connection) -> None:
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found == "ok" and any(database.execute(odd).fetchone() for odd in _ODD):
        found = "values of other types"
    if found != "ok":
        damage = sqlite3.DatabaseError(str(found))
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def _connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        if _refuse_newer(database, path) == 0:
            # Only a file that is empty yet takes it, and it is written even where it is known.
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for setting in _SETTINGS:
            database.execute(setting).fetchone()
        migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def _refuse_newer(database: sqlite3.Connection, path: str) -> int:
    version = version_of(database)
    if version > VERSION:
        raise ArchiveError(
            f"{path} was written by a newer version of Diffuse (format {version}, this one "
            f"reads up to {VERSION}); update Diffuse, or start with --no-history"
        )
    return version


def _set_aside(file: Path) -> Path:
    """Rename a damaged file and what SQLite keeps beside it; a file set aside is kept."""
    for number in range(1, MAX_DAMAGED):
        aside = file.with_name(f"{file.name}.damaged-{number}")
        if aside.exists():
            continue
        file.rename(aside)
        for ending in ("-wal", "-shm"):
            beside = Path(str(file) + ending)
            if beside.exists():
                beside.rename(str(aside) + ending)
        Path(str(file) + SUSPECT).unlink(missing_ok=True)
        return aside
    raise OSError(f"{MAX_DAMAGED} damaged files are beside it already")
