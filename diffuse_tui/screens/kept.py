"""What the main screen does with conversations that are kept: list, open, export them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError
from diffuse_tui.presenter.figures import counted
from diffuse_tui.widgets.chat_pane import ChatPane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.screen import Screen

    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import Dialogue
    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.screens.palette import Command

LISTED = 50
"""Conversations that can be gone to by their titles from the command palette."""


class KeptConversations:
    """Stands between the chat of a screen and the archive, once there is one."""

    def __init__(self, screen: Screen[None], to_chat: Callable[[], None]) -> None:
        self._screen = screen
        self._to_chat = to_chat
        self._archive: Archive | None = None

    @property
    def _pane(self) -> ChatPane:
        return self._screen.query_one(ChatPane)

    def use(self, archive: Archive) -> None:
        """From now on conversations are kept here."""
        self._archive = archive
        self._pane.use_archive(archive)

    def show(self, facts: Facts) -> None:
        """List them."""
        from diffuse_tui.screens.conversations import ConversationsScreen

        if self._archive is None:
            self._screen.notify("Conversations are not kept in this app.", markup=False)
            return
        self._archive.mark_cut()  # Another app may have ended in the middle of an answer.
        pane = self._pane
        screen = ConversationsScreen(
            facts, self._archive, open_id=pane.dialogue_id, answering=lambda: pane.busy
        )
        self._screen.app.push_screen(screen, self._chosen)

    def commands(self) -> Iterator[Command]:
        """The newest conversations, for the command palette."""
        from diffuse_tui.screens.palette import Command

        for head in self._archive.heads(limit=LISTED) if self._archive is not None else ():
            about = f"conversation · {counted(head.turns, 'turn')}"
            yield Command(
                f"Chat: {head.title}", about, partial(self._chosen, head.id), listed=False
            )

    def _chosen(self, number: int | None) -> None:
        archive, pane = self._archive, self._pane
        if archive is None:
            return
        before = pane.dialogue_id
        # What another app deleted stays on the screen, and goes on as a copy.
        if before is not None and archive.is_deleted(before):
            pane.forgotten(before)
        if number is not None:
            self._to_chat()
        if number == 0:
            pane.action_new_conversation()
        elif number is not None and number != before:
            self._open(archive.load(number))

    def _open(self, dialogue: Dialogue | None) -> None:
        if dialogue is None:
            return
        if dialogue.turns and dialogue.turns[-1].state == "streaming":
            # Two that write turns of one number would overwrite each other's.
            self._pane.say("another app is writing an answer in it; open it after that", "warning")
            return
        self._pane.open_dialogue(dialogue)

    def export(self, asked: ChatPane.Export) -> None:
        """Write the conversation of the chat to a file, and say where it is."""
        dialogue = self._pane.dialogue()
        if dialogue is None:
            self._pane.say("there is nothing to export yet", "warning")
            return
        self._screen.run_worker(self._write(dialogue, asked), group="export")

    async def _write(self, dialogue: Dialogue, asked: ChatPane.Export) -> None:
        from diffuse_tui.archive.export import export_dialogue

        try:
            path = await export_dialogue(dialogue, asked.path, f".{asked.kind}")
        except DiffuseError as error:
            self._pane.say(str(error), "bad")
            return
        self._pane.say(f"written to {path}", "good")
