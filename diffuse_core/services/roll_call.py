"""Asks the Stages of a Session time and again whether they live, and finds who does not answer.

It goes on whether or not somebody waits for a token: a Stage that does not hear its Client for a
while frees the Session. Nothing here waits for a Stage: one that reads no more must not keep the
others from being asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.errors import ChannelClosed
from diffuse_core.services.progress import Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.messages import SessionAlive, WatchSession
    from diffuse_core.services.links import Link
    from diffuse_core.services.tasks import TaskOwner

WATCH_S = 1.0
"""So often each Stage is asked."""
SILENT_S = 2.0
"""One that has said nothing for so long since it was asked is lost."""
TICKS = 4
"""Looks in each WATCH_S."""


class _Watched:
    """What is known of one Stage. Times by the loop's clock."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.asked_at: float | None = None
        self.last_asked = float("-inf")
        self.asking: asyncio.Task[None] | None = None


class RollCall:
    """Watches the Stages of one Session.

    `lost` is called, once for each watched link, when it ended or nothing was heard over it;
    `tick` at each look.
    """

    def __init__(
        self,
        question: WatchSession,
        tasks: TaskOwner,
        lost: Callable[[Link], None],
        tick: Callable[[float], None],
    ) -> None:
        self._question = question
        self._tasks = tasks
        self._lost = lost
        self._tick = tick
        self._watched: dict[Link, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask; idempotent."""
        if self._task is None:
            self._task = self._tasks.spawn(self._run(), "roll call")

    def stop(self) -> None:
        """Ask no more; idempotent."""
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()

    def watch(self, link: Link) -> None:
        """Ask over this link from now on: at once, if it stands."""
        if link not in self._watched:
            one = self._watched[link] = _Watched()
            if self._task is not None and not link.closed:
                self._look(link, one, asyncio.get_running_loop().time())

    def leave(self, link: Link) -> None:
        """Ask there no more."""
        self._watched.pop(link, None)

    def heard(self, link: Link) -> None:
        """A Stage said something of this Session."""
        if (one := self._watched.get(link)) is not None:
            one.asked_at = None

    def told(self, link: Link, answer: SessionAlive) -> None:
        """A Stage answered; with what it counts."""
        if (one := self._watched.get(link)) is not None:
            one.counts = Counts(answer.received, answer.ran, answer.sent)

    def counts(self, link: Link) -> Counts:
        """What a Stage told last."""
        one = self._watched.get(link)
        return one.counts if one is not None else Counts()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            late = max(0.0, loop.time() - due)
            due = loop.time() + WATCH_S / TICKS
            for link, one in list(self._watched.items()):
                if one.asked_at is not None:
                    # While we were held up ourselves nobody could be heard.
                    one.asked_at += late
                self._look(link, one, loop.time())
            self._tick(loop.time())
            await asyncio.sleep(due - loop.time())

    def _look(self, link: Link, one: _Watched, now: float) -> None:
        silent = one.asked_at is not None and now - one.asked_at >= SILENT_S
        if link.closed or silent:
            self.leave(link)
            self._lost(link)
        elif one.asked_at is None and now - one.last_asked >= WATCH_S:
            one.asked_at = one.last_asked = now
            # A question that does not even leave is one more that is not answered.
            if one.asking is None or one.asking.done():
                one.asking = self._tasks.spawn(self._ask(link), "ask")

    async def _ask(self, link: Link) -> None:
        try:
            await link.send(self._question)
        except ChannelClosed:
            return
