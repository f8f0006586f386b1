"""How many generations run at once, and who waits for one to end."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from diffuse_core.adapters.openai_server.errors import BUSY_RETRY_S, ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from diffuse_core.adapters.openai_server.limits import ApiLimits


MAX_RETRY_S = 60.0
"""The official clients take no longer one for meant."""
_SHARE = 0.2
"""Of the latest answer in how long they take."""


class Gate:
    """Lets so many generations in; first come, first served.

    Who is refused is told when there will be room, each a little later than the one before: else
    all that were refused would come back at once, and most of them in vain.
    """

    def __init__(self, limits: ApiLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.at_once)
        self._waiting = 0
        self._taken_s = float(BUSY_RETRY_S)
        self._promised = 0.0

    @asynccontextmanager
    async def entered(self) -> AsyncGenerator[None, None]:
        """Wait to be let in, and be in.

        Raises:
            ApiError: too many wait already, or it takes too long.
        """
        if self._waiting >= self._limits.waiting:
            raise self._busy()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise self._busy() from None
        finally:
            self._waiting -= 1
        begun = _now()
        try:
            yield
        finally:
            self._taken_s += _SHARE * (_now() - begun - self._taken_s)
            self._free.release()

    async def try_enter(self) -> bool:
        """Be in, if nobody has to be waited for; whoever is calls `leave`."""
        if self._free.locked():
            return False
        return await self._free.acquire()

    def leave(self) -> None:
        """Let the next one in."""
        self._free.release()

    def _busy(self) -> ApiError:
        return ApiError(
            429,
            f"{self._limits.at_once} answers are being given, as many as this server takes on, "
            f"and {self._waiting} requests wait; ask again in a moment",
            retry_after_s=max(BUSY_RETRY_S, math.ceil(self._promise() - _now())),
        )

    def _promise(self) -> float:
        """When half of those who wait will be in, or a place later than was promised last."""
        now, each_s = _now(), self._taken_s / self._limits.at_once
        room = now + each_s * self._waiting / 2
        self._promised = min(max(room, self._promised + each_s), now + MAX_RETRY_S)
        return self._promised


def _now() -> float:
    return asyncio.get_running_loop().time()
