"""The generations that the chat asks for: one at a time, told event by event."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Failed
from diffuse_core.errors import DiffuseError
from diffuse_tui.widgets.chat_pane import ChatPane

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.worker import Worker

    from diffuse_core.ports import Attachment

CLOSE_S = 1.5
"""How long stopping may wait for the node to hear of it."""
ENDED_CODES = (5, 7)
"""Exit codes of answers whose node, or one of its Stages, went away."""
BY_YOU = "stopped by you: the host here was ended while it answered"


class Generations:
    """Runs a generation over the attachment there is, and tells the pane that asked.

    Args:
        app: Owns the task.
        attachment: The tie to the node, None while there is none.
        ending: Whether the user has the node ended.
    """

    def __init__(
        self,
        app: App[None],
        attachment: Callable[[], Attachment | None],
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._attachment = attachment
        self._ending = ending
        self._running: Worker[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether one runs."""
        return self._running is not None and self._running.is_running

    def start(self, ask: ChatPane.Ask) -> None:
        """Run what was asked for."""
        # A callable and no coroutine: that would be left over where the app ends before it starts.
        work = partial(self._generate, ask)
        self._running = self._app.run_worker(work, group="generation")

    def stop(self) -> None:
        """Cancel it; closing the iterator stops the work on every host."""
        if self._running is not None:
            # Not before it has begun: a task that is cancelled then never tells that it is over.
            asyncio.get_running_loop().call_soon(self._running.cancel)

    async def _generate(self, ask: ChatPane.Ask) -> None:
        try:
            await self._stream(ask)
        except (DiffuseError, OSError, TimeoutError) as error:
            code = error.exit_code if isinstance(error, DiffuseError) else 1
            why = str(error) or type(error).__name__
            failed = self._explained(Failed(why, code))
            ask.pane.post_message(ChatPane.Arrived(ask.number, failed))
        finally:
            ask.pane.post_message(ChatPane.Ended(ask.number))

    async def _stream(self, ask: ChatPane.Ask) -> None:
        attachment = self._attachment()
        if attachment is None:
            why = "the app is not attached to its node; it keeps trying"
            ask.pane.post_message(ChatPane.Arrived(ask.number, Failed(why, 5)))
            return
        events = attachment.generate(ask.request)
        try:
            async for event in events:
                told = self._explained(event) if isinstance(event, Failed) else event
                ask.pane.post_message(ChatPane.Arrived(ask.number, told))
        finally:
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await aclose()

    def _explained(self, failed: Failed) -> Failed:
        """Why an answer failed: who has the node ended need not be told to start it again."""
        if failed.exit_code in ENDED_CODES and self._ending():
            return Failed(BY_YOU, failed.exit_code)
        return failed
