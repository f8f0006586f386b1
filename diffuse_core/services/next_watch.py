"""While a Client waits for a token: asks the next Stage whether it lives.

A link that ends is noticed; a Sentinel, or the network, may swallow what it carries, though the
Client reaches both of us. Any answer will do. The Client asks us again and again, so that one look
is short, and however often it does, the next Stage is asked seldom.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import WatchSession
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    import asyncio

    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links
    from diffuse_core.services.stage_outlet import Outlet
    from diffuse_core.services.tasks import TaskOwner

ASK_S = 0.5
"""As often at most it is asked."""
ANSWER_S = 3.0
"""One that lives answers sooner."""


class NextWatch:
    """Of one Session, which Stages call `name`."""

    def __init__(self, name: bytes, outlet: Outlet, clock: Clock) -> None:
        self._name = name
        self._outlet = outlet
        self._clock = clock
        self._asked: tuple[int, float] | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self, links: Links, tasks: TaskOwner) -> None:
        """Ask, or end a link that nothing comes over; waits for nothing."""
        link = self._outlet.next
        if link is None or link.closed:
            return
        # A Sentinel that reads no more would keep the Client waiting, too.
        if self._task is None or self._task.done():
            self._task = tasks.spawn(self._look(link, links), "watch")

    async def _look(self, link: Link, links: Links) -> None:
        now = self._clock.monotonic()
        asked = self._asked
        if asked is not None and asked[0] == link.heard:
            if now - asked[1] >= ANSWER_S:
                links.doubt(link)
                await link.close()
        elif asked is None or now - asked[1] >= ASK_S:
            self._asked = link.heard, now
            with contextlib.suppress(ChannelClosed):
                await link.send(WatchSession(self._name))
