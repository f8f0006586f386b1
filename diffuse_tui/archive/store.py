"""The archive: conversations in one SQLite file, which several apps may have open at once.

Every call is synchronous and short. The app goes on when the disk does not: what cannot be kept is
not kept, and that is told once. Nothing that is kept here is ever logged.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffuse_tui.archive import rows, search, turns
from diffuse_tui.archive.apps import AppMark
from diffuse_tui.archive.opening import MEMORY, ArchiveError, is_damage, open_database, suspect
from diffuse_tui.archive.schema import prepare_words
from diffuse_tui.archive.transaction import all_or_nothing
from diffuse_tui.archive.trouble import MayFail, otherwise
from diffuse_tui.archive.upkeep import cut_left, leave_no_trace, purge_left, remove
from diffuse_tui.presenter.dialogue import Dialogue, DialogueHead, KeptTurn
from diffuse_tui.presenter.titles import first_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffuse_tui.presenter.parameters import Params

NOT_KEPT = 0
"""The id of a conversation that could not be kept; every call takes it and does nothing."""
MAX_KEPT = 10_000
"""Conversations; beyond, those that were not touched for longest go."""
MAX_TURNS = 5000
"""Turns of one conversation that are read back, the newest."""


def open_archive(path: str | Path) -> Archive:
    """The archive at `path`, or one that keeps nothing when that cannot be used: see `notice`."""
    try:
        return Archive(path)
    except ArchiveError as error:
        archive = Archive(MEMORY)
        archive.notice = str(error)
        return archive


class Archive(MayFail):
    """Keeps conversations. See MayFail for how it tells what cannot be kept.

    Attributes:
        cut: How many answers were found on opening that ended with their app.

    Args:
        path: The file, created when missing; `:memory:` keeps nothing on disk.

    Raises:
        ArchiveError: the file is of a newer version, or cannot be opened or written.
    """

    def __init__(self, path: str | Path = MEMORY) -> None:
        super().__init__(str(path))
        self._path = str(path)
        self._mark: AppMark | None = None
        self._owner = "memory"
        self._begun: set[int] = set()
        self._removed = 0
        self._closed = False
        try:
            try:
                self._open()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                suspect(self._path)
                self._open()
        except (sqlite3.Error, OSError) as error:
            raise ArchiveError(
                f"conversations cannot be kept in {path} ({error}); free some space, or start "
                "with --no-history"
            ) from error

    def _open(self) -> None:
        self._database, self.notice = open_database(self._path)
        try:
            self._words = prepare_words(self._database)
            with all_or_nothing(self._database):
                # Within: an app that looks for marks while another makes its own would err.
                if self._path != MEMORY:
                    self._mark = AppMark(Path(self._path))
                    self._owner = self._mark.token
                running = self._running()
                self.cut = cut_left(self._database, running)
                self._removed = purge_left(self._database, running, words=self._words)
            self._remove_over(MAX_KEPT)
        except BaseException:
            self._let_go()
            raise

    def _running(self) -> set[str]:
        return self._mark.running() if self._mark is not None else {self._owner}

    def _let_go(self) -> None:
        if self._mark is not None:
            self._mark.release()
        self._database.close()

    # --- writing ----------------------------------------------------------------------------

    @otherwise(NOT_KEPT)
    def create(self, model: str, system: str, params: Params, at: float) -> int:
        """Begin a conversation; its id, or `NOT_KEPT`. It is listed once it has a turn."""
        done = self._database.execute(
            "INSERT INTO conversation (model, system, params, created, changed) "
            "VALUES (?, ?, ?, ?, ?)",
            (
                rows.storable(model, rows.MAX_NAME),
                rows.storable(system, rows.MAX_TEXT),
                rows.params_text(params),
                at,
                at,
            ),
        )
        number = done.lastrowid or NOT_KEPT
        self._begun.add(number)
        return number

    def add(self, dialogue: Dialogue) -> int:
        """Keep a whole conversation that was kept elsewhere; its id here, or `NOT_KEPT`."""
        at = dialogue.changed_at
        begun = min(dialogue.created_at, at)
        number = self.create(dialogue.model, dialogue.system, dialogue.params, begun)
        if dialogue.turns:
            self.put_turns(number, dialogue.turns, at, after=None)
        if dialogue.title:
            self.set_title(number, dialogue.title, at)
        return number

    @otherwise(None)
    def put_turns(
        self, number: int, given: Sequence[KeptTurn], at: float, *, after: KeptTurn | None
    ) -> bool | None:
        """Keep turns in the place of all from the first of them on, if nobody else wrote some.

        Args:
            number: The conversation.
            given: At least one turn; numbers in order.
            at: Unix time in seconds.
            after: The newest turn that is expected to be there, None for none.

        Returns:
            False when another app went on with the conversation or deleted it: nothing is changed
            then. None when it cannot be kept, which is told apart.
        """
        with all_or_nothing(self._database):
            there = turns.newest(self._database, number)
            if number != NOT_KEPT and (
                self.is_gone(number) or there != (after and (after.number, after.at))
            ):
                return False
            if not self._touch(number, at):
                return None
            turns.drop_after(self._database, number, given[0].number, words=self._words)
            self._put(number, given)
            return True

    def _put(self, number: int, given: Sequence[KeptTurn]) -> None:
        for turn in given:
            row = turns.put(self._database, number, turn, self._owner, words=self._words)
            # Many at once enter the index with the next search: it takes a while.
            if self._words and len(given) == 1:
                turns.index(self._database, row, turn)

    def set_title(self, number: int, title: str, at: float) -> None:
        """Name a conversation; an empty name is its first question's first words again."""
        self._set_title(number, " ".join(title.split()), at)

    @otherwise(None)
    def _set_title(self, number: int, title: str, at: float) -> None:
        named = bool(title)
        if not named:
            first = self._database.execute(
                "SELECT question FROM turn WHERE conversation = ? AND number = 0", (number,)
            ).fetchone()
            title = first_words(first[0]) if first else ""
        self._set(number, "title", rows.storable(title, rows.MAX_NAME), at)
        self._set(number, "named", named, at)

    @otherwise(None)
    def set_system(self, number: int, system: str, at: float) -> None:
        """Change the system prompt."""
        self._set(number, "system", rows.storable(system, rows.MAX_TEXT), at)

    @otherwise(None)
    def set_params(self, number: int, params: Params, at: float) -> None:
        """Change the parameters."""
        self._set(number, "params", rows.params_text(params), at)

    @otherwise(None)
    def set_model(self, number: int, model: str, at: float) -> None:
        """Change the model, `id@fingerprint`."""
        self._set(number, "model", rows.storable(model, rows.MAX_NAME), at)

    # --- reading ----------------------------------------------------------------------------

    @otherwise(None)
    def load(self, number: int) -> Dialogue | None:
        """The whole conversation; None when there is none (any more)."""
        row = self._database.execute(
            f"SELECT {rows.CONVERSATION} FROM conversation "  # noqa: S608 - our names
            "WHERE id = ? AND deleted_by IS NULL",
            (number,),
        ).fetchone()
        if row is None:
            return None
        found = self._database.execute(
            f"SELECT {rows.TURN} FROM turn WHERE conversation = ? "  # noqa: S608 - our names
            "ORDER BY number DESC LIMIT ?",
            (number, MAX_TURNS),
        ).fetchall()
        return rows.dialogue(row, reversed(found))

    @otherwise(False)
    def is_gone(self, number: int) -> bool:
        """Whether a conversation was deleted; not where the disk does not tell."""
        return number != NOT_KEPT and not self._of(number, "deleted_by IS NULL")

    @otherwise(False)
    def is_deleted(self, number: int) -> bool:
        """Whether this app deleted a conversation, and could bring it back."""
        return bool(self._of(number, "deleted_by") == self._owner)

    @otherwise("")
    def title(self, number: int) -> str:
        """What a conversation is called, "" when there is none."""
        return str(self._of(number, "title") or "")

    @otherwise(None)
    def latest(self) -> Dialogue | None:
        """The conversation that was changed last, of those with a turn."""
        row = self._database.execute(
            "SELECT id FROM conversation WHERE deleted_by IS NULL AND EXISTS "
            "(SELECT 1 FROM turn WHERE turn.conversation = conversation.id) "
            "ORDER BY changed DESC, id DESC LIMIT 1"
        ).fetchone()
        return None if row is None else self.load(row[0])

    @otherwise(())
    def heads(self, query: str = "", limit: int = 500) -> tuple[DialogueHead, ...]:
        """Conversations with at least a turn, newest first; with a query, those that have it.

        Args:
            query: Words that must all be in one turn, or in the title. Any text is harmless.
            limit: How many at most.
        """
        words = search.words_of(query)
        if not words:
            return tuple(self._head(row, "") for row in self._head_rows(limit))
        found = dict(search.find(self._database, words, indexed=self._words))
        heads = []
        for row in self._head_rows(MAX_KEPT):
            number = found.get(row[0])
            if number is not None:
                heads.append(self._head(row, self._snippet(row[0], number, words)))
                if len(heads) == limit:
                    break
        return tuple(heads)

    @otherwise(0)
    def size(self) -> int | None:
        """Bytes of the file, free pages included; None where there is no file."""
        if self._path == MEMORY:
            return None
        pages, page = (
            int(self._database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "page_size")
        )
        return pages * page

    # --- forgetting -------------------------------------------------------------------------

    @otherwise(NOT_KEPT)
    def delete(self, number: int) -> int:
        """Take a conversation out of sight; the token brings it back until this app ends."""
        self._database.execute(
            "UPDATE conversation SET deleted_by = ? WHERE id = ? AND deleted_by IS NULL",
            (self._owner, number),
        )
        return number

    @otherwise(False)
    def restore(self, token: int) -> bool:
        """Bring back what `delete` took; False when it is gone for good."""
        done = self._database.execute(
            "UPDATE conversation SET deleted_by = NULL WHERE id = ? AND deleted_by = ?",
            (token, self._owner),
        )
        return done.rowcount == 1

    @otherwise(0)
    def mark_cut(self) -> int:
        """Call `cut` what streams in apps that are gone; how many. Opening does it already."""
        with all_or_nothing(self._database):
            return cut_left(self._database, self._running())

    def close(self) -> None:
        """Forget what was deleted, for good, and let go of the file. Again: nothing happens."""
        if not self._closed:
            self._finish()
            self._closed = True
            self._let_go()

    # --- within -----------------------------------------------------------------------------

    def tell_trouble(self, error: Exception) -> None:
        """Something could not be kept or read: say so, the first time, unless this is closed."""
        if not self._closed:
            super().tell_trouble(error)

    def _remove_over(self, keep: int) -> int:
        with all_or_nothing(self._database):
            return self._remove_here(
                "id IN (SELECT id FROM conversation ORDER BY changed DESC, id DESC "
                "LIMIT -1 OFFSET ?)",
                (max(0, keep),),
            )

    def _remove_here(self, where: str, values: tuple[Any, ...]) -> int:
        gone = remove(self._database, where, values, words=self._words)
        self._removed += gone
        return gone

    @otherwise(None)
    def _finish(self) -> None:
        with all_or_nothing(self._database):
            self._remove_here("deleted_by = ?", (self._owner,))
            for number in self._begun:
                remove(
                    self._database,
                    "id = ? AND NOT EXISTS "
                    "(SELECT 1 FROM turn WHERE turn.conversation = conversation.id)",
                    (number,),
                    words=False,
                )
        if self._removed:
            leave_no_trace(self._database, words=self._words)

    def _of(self, number: int, what: str) -> Any:
        """`what`, which is our own text, of a conversation; None when there is none."""
        row = self._database.execute(
            f"SELECT {what} FROM conversation WHERE id = ?",  # noqa: S608
            (number,),
        ).fetchone()
        return row[0] if row is not None else None

    def _touch(self, number: int, at: float) -> bool:
        """Note when a conversation changed; False when there is none."""
        done = self._database.execute(
            "UPDATE conversation SET changed = max(changed, ?) WHERE id = ?", (at, number)
        )
        return done.rowcount == 1

    def _set(self, number: int, column: str, value: object, at: float) -> None:
        self._database.execute(
            f"UPDATE conversation SET {column} = ?, changed = max(changed, ?) "  # noqa: S608
            "WHERE id = ?",
            (value, at, number),
        )

    def _head_rows(self, limit: int) -> Iterator[tuple[Any, ...]]:
        return self._database.execute(
            "SELECT id, title, model, changed, turns FROM (SELECT *, (SELECT count(*) FROM turn "
            "WHERE turn.conversation = conversation.id) AS turns FROM conversation "
            "WHERE deleted_by IS NULL) WHERE turns > 0 ORDER BY changed DESC, id DESC LIMIT ?",
            (max(0, limit),),
        )

    def _head(self, row: tuple[Any, ...], snippet: str) -> DialogueHead:
        number, title, model, changed, turns = row
        return DialogueHead(
            id=number, title=title, model=model, changed_at=changed, turns=turns, snippet=snippet
        )

    def _snippet(self, number: int, turn: int, words: tuple[str, ...]) -> str:
        if turn < 0:
            return ""
        row = self._database.execute(
            "SELECT question || char(10) || answer FROM turn "
            "WHERE conversation = ? AND number = ?",
            (number, turn),
        ).fetchone()
        return search.snippet(row[0], words) if row else ""
