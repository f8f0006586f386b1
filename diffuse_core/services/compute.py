"""The executor thread: the one place where a node computes, so that the event loop never waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ComputeThread:
    """One thread, work in order of arrival."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="executor")

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def post(self, work: Callable[[], object]) -> None:
        """Run `work` after all that was asked for before, without waiting."""
        self._pool.submit(work)

    def close(self) -> None:
        """Take no more work; what runs now ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
