"""Tells Clients what failed, without waiting for them.

One that reads nothing must not keep anything here: neither what its Session held, nor more words
than a few, nor more tasks than it has links.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.messages import SessionFailed
    from diffuse_core.services.links import Link
    from diffuse_core.services.tasks import TaskOwner

LAST_WORDS_S = 1.0
"""For what is still to be told when a Slice is let go of."""
MOST = 128
"""Words that wait for one link; of more, the oldest are lost."""


class Tidings:
    """What is to be told, by link, in order."""

    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks
        self._waiting: dict[Link, deque[SessionFailed]] = {}
        self._sending: dict[Link, asyncio.Task[None]] = {}

    def tell(self, link: Link, failed: SessionFailed) -> None:
        """Have a Client told, as soon as its link takes it."""
        waiting = self._waiting.get(link)
        if waiting is not None:
            waiting.append(failed)
            return
        self._waiting[link] = deque((failed,), MOST)
        task = self._tasks.spawn(self._send(link), "failed")
        if task is None:
            del self._waiting[link]
        else:
            self._sending[link] = task

    async def told(self) -> None:
        """Return when all is told that Clients take, within LAST_WORDS_S."""
        if sending := [*self._sending.values()]:
            await asyncio.wait(sending, timeout=LAST_WORDS_S)

    async def _send(self, link: Link) -> None:
        waiting = self._waiting[link]
        try:
            with contextlib.suppress(ChannelClosed):
                while waiting:
                    await link.send(waiting.popleft())
        finally:
            del self._waiting[link], self._sending[link]
