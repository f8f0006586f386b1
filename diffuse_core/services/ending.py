"""The end of a node: asked for by a signal or by its owner, and then only ever hastened."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from diffuse_core.services.placement import STOP_S
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Ending:
    """Begins with the first request; each further one may shorten what Sessions are given.

    Args:
        leave: lets the Sessions of the Host finish, for so many seconds (None: its usual time).
            Called for the first request, and again, after a cancellation, for each that asks for
            an earlier end: the Host keeps the earliest. None where there is no Host.
        signalled: what Sessions are given when a signal asks; None leaves it to the Host.
    """

    def __init__(
        self,
        leave: Callable[[float | None], Awaitable[None]] | None = None,
        signalled: float | None = None,
    ) -> None:
        self._leave = leave
        self._signalled = signalled
        self._tasks = TaskOwner("ending")
        self.asked = asyncio.Event()
        self._by = math.inf
        self._patience: float | None = None
        self._sooner = asyncio.Event()
        self._over = asyncio.Event()

    def ask(self, patience: float | None = None) -> None:
        """End; Sessions may take `patience` seconds, None leaves it to the Host.

        However often it is asked, one task does it.
        """
        by = asyncio.get_running_loop().time() + (STOP_S if patience is None else patience)
        if by < self._by:
            self._by, self._patience = by, patience
            self._sooner.set()
        if not self.asked.is_set():
            self.asked.set()
            self._tasks.spawn(self._end(), "leave")

    async def over(self, signalled: asyncio.Event) -> None:
        """Wait until nothing keeps the node any longer. `signalled` is a request as well."""
        signal = asyncio.create_task(signalled.wait(), name="signal")
        over = asyncio.create_task(self._over.wait(), name="over")
        try:
            await asyncio.wait((signal, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                self.ask(self._signalled)
            await over
        finally:
            signal.cancel()
            over.cancel()

    async def close(self) -> None:
        """Wait for no request any more."""
        await self._tasks.close()

    async def _end(self) -> None:
        try:
            while self._leave is not None and not await self._left(self._leave):
                continue
        finally:
            self._over.set()

    async def _left(self, leave: Callable[[float | None], Awaitable[None]]) -> bool:
        """Whether the Host has left; False when an earlier end was asked for meanwhile."""
        self._sooner.clear()
        leaving = asyncio.ensure_future(leave(self._patience))
        sooner = asyncio.create_task(self._sooner.wait(), name="sooner")
        try:
            await asyncio.wait((leaving, sooner), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                await leaving
            return leaving.done()
        finally:
            for task in (leaving, sooner):
                task.cancel()
            await asyncio.gather(leaving, sooner, return_exceptions=True)
