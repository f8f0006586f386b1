"""What of the conversation is written to the archive, and when. Without an archive: nothing."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
    from diffuse_tui.presenter.talk import Talk

COPIED = (
    "another app went on with this conversation, or deleted it: "
    "what is on the screen is kept as a copy from here on"
)


def unix_now() -> float:
    """Unix time in seconds."""
    return datetime.datetime.now(datetime.UTC).timestamp()


class Keeper:
    """Keeps one conversation up to date in the archive; it is created with its first question.

    Args:
        tell: Called with what the user should know.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._archive: Archive | None = None
        self._id: int | None = None
        self._title = ""
        self._model = ""
        self._stored: tuple[KeptTurn, ...] = ()

    @property
    def id(self) -> int | None:
        """The archive's number of the conversation, None while it is not kept."""
        return self._id

    @property
    def title(self) -> str:
        """The name that the archive has or that the user gave, "" for none."""
        if self._archive is None or self._id is None:
            return self._title
        return self._archive.title(self._id) or self._title

    def use(self, archive: Archive) -> None:
        """From now on keep in this one."""
        self._archive = archive

    def begin(self) -> None:
        """The next question begins another conversation."""
        self._id, self._title, self._model, self._stored = None, "", "", ()

    def go_on(self, dialogue: Dialogue) -> None:
        """Keep what follows in a conversation that is there already."""
        self.begin()
        self._title = dialogue.title
        # One so long that its beginning was not read goes on as another: nothing of it is lost.
        if not dialogue.turns or dialogue.turns[0].number == 0:
            self._id, self._model, self._stored = dialogue.id, dialogue.model, dialogue.turns

    def keep(self, talk: Talk) -> None:
        """Write what is not written so already, in the place of what was there from it on.

        Where the file does not have what this app left there, another app wrote in the meantime:
        both go on, this one with a copy.
        """
        archive, turns, now = self._archive, talk.turns, unix_now()
        if archive is None or not turns or turns == self._stored:
            return
        if self._id is None and not self._create(archive, talk, now):
            return
        same = self._same(turns)
        after = self._stored[-1] if self._stored else None
        kept = archive.put_turns(self._id or 0, turns[same:], now, after=after)
        if kept is False:
            self._title = f"{self.title} (copy)" if self.title else ""
            self._id, self._stored = None, ()
            self._tell(COPIED)
            self.keep(talk)
        elif kept:
            self._stored = turns
            if turns[-1].model != self._model:
                self._model = turns[-1].model
                archive.set_model(self._id or 0, self._model, now)

    def settings(self, talk: Talk) -> None:
        """System prompt or parameters changed."""
        if self._archive is not None and self._id is not None:
            self._archive.set_system(self._id, talk.system, unix_now())
            self._archive.set_params(self._id, talk.params, unix_now())

    def name(self, title: str) -> None:
        """Name the conversation; one that is not kept yet is named once it is."""
        self._title = title
        if self._archive is not None and self._id is not None:
            self._archive.set_title(self._id, title, unix_now())

    def _same(self, turns: tuple[KeptTurn, ...]) -> int:
        """How many turns are in the file as they are here; never all, so that one is written."""
        pairs = enumerate(zip(turns[:-1], self._stored, strict=False))
        changed = (place for place, (turn, stored) in pairs if turn != stored)
        return next(changed, min(len(turns) - 1, len(self._stored)))

    def _create(self, archive: Archive, talk: Talk, now: float) -> bool:
        """Begin a conversation there; False when that cannot be, which is tried again."""
        self._model = talk.turns[-1].model
        self._id = archive.create(self._model, talk.system, talk.params, now) or None
        if self._id is not None and self._title:
            archive.set_title(self._id, self._title, now)
        return self._id is not None
