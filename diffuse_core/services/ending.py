"""The end of a node: asked for by a signal or by its owner, and then only ever hastened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_REQUESTS = 16
"""Requests that are waited for at a time; further ones are dropped."""


class Ending:
    """Begins with the first request; each further one may shorten what Sessions are given.

    Args:
        leave: lets the Sessions of the Host finish, for so many seconds (None: its usual time);
            called once for each request. None where there is no Host.
    """

    def __init__(self, leave: Callable[[float | None], Awaitable[None]] | None = None) -> None:
        self._leave = leave
        self._tasks = TaskOwner("ending", MAX_REQUESTS)
        self.asked = asyncio.Event()
        self._over = asyncio.Event()

    def ask(self, patience: float | None = None) -> None:
        """End; Sessions may take `patience` seconds, None leaves it to the Host."""
        self.asked.set()
        self._tasks.spawn(self._end(patience), "leave")

    async def over(self, signalled: asyncio.Event) -> None:
        """Wait until nothing keeps the node any longer. `signalled` is a request as well."""
        signal = asyncio.create_task(signalled.wait(), name="signal")
        over = asyncio.create_task(self._over.wait(), name="over")
        try:
            await asyncio.wait((signal, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                self.ask()
            await over
        finally:
            signal.cancel()
            over.cancel()

    async def close(self) -> None:
        """Wait for no request any more."""
        await self._tasks.close()

    async def _end(self, patience: float | None) -> None:
        try:
            if self._leave is not None:
                await self._leave(patience)
        finally:
            self._over.set()
