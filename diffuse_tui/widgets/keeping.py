"""What of the conversation is written to the archive, and when. Without an archive: nothing."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
    from diffuse_tui.presenter.talk import Talk


def unix_now() -> float:
    """Unix time in seconds."""
    return datetime.datetime.now(datetime.UTC).timestamp()


class Keeper:
    """Keeps one conversation up to date in the archive; it is created with its first question."""

    def __init__(self) -> None:
        self._archive: Archive | None = None
        self._id: int | None = None
        self._title = ""
        self._written: KeptTurn | None = None

    @property
    def id(self) -> int | None:
        """The archive's number of the conversation, None while it is not kept."""
        return self._id or None

    @property
    def title(self) -> str:
        """The name that the user gave or that the archive has, "" for none."""
        return self._title

    def use(self, archive: Archive) -> None:
        """From now on keep in this one."""
        self._archive = archive

    def begin(self) -> None:
        """The next question begins another conversation."""
        self._id, self._title, self._written = None, "", None

    def go_on(self, dialogue: Dialogue) -> None:
        """Keep what follows in a conversation that is there already."""
        self._id, self._title, self._written = dialogue.id, dialogue.title, None

    def turn(self, talk: Talk) -> None:
        """Write the newest turn, when it is not written so already."""
        turn = talk.last
        if self._archive is None or turn is None or turn == self._written:
            return
        if self._id is None:
            self._id = self._create(self._archive, talk)
        elif self._written is None or self._written.model != turn.model:
            self._archive.set_model(self._id, turn.model, unix_now())
        self._archive.put_turn(self._id, turn, unix_now())
        self._written = turn

    def turns_from(self, talk: Talk, first: int) -> None:
        """Write all turns from `first` on in the place of those that are kept."""
        if self._archive is None or self._id is None:
            return
        self._archive.drop_turns(self._id, first)
        self._written = None
        for turn in talk.turns[first:]:
            self._archive.put_turn(self._id, turn, unix_now())

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

    def _create(self, archive: Archive, talk: Talk) -> int:
        """Begin a conversation with all turns before the newest."""
        number = archive.create(talk.turns[-1].model, talk.system, talk.params, unix_now())
        for turn in talk.turns[:-1]:
            archive.put_turn(number, turn, unix_now())
        if self._title:
            archive.set_title(number, self._title, unix_now())
        return number
