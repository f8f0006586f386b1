"""The executor thread: the one place where a node computes, so that the event loop never waits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ComputeThread:
    """One thread, work in order of arrival; to be used from the event loop only."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="executor", initializer=self._starts)
        self._under_way: set[Future[Any]] = set()
        self.in_loop = False
        """Brief work may run in the event loop. Not where a pass has several CPU threads: each
        thread that computes gets helpers of its own, and those of two keep each other from the
        cores (one host with two threads went from 113 to 70 tokens/s)."""

    def _starts(self) -> None:
        self._thread = threading.current_thread()

    @property
    def alive(self) -> bool:
        """Whether the thread can take work: it was not needed yet, or has not ended."""
        return self._thread is None or self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether brief work may run in the event loop, now."""
        return self.in_loop and not self._under_way

    async def run(self, work: Callable[[], T], *, brief: bool = False) -> T:
        """Run `work` on the thread and wait for it.

        What is `brief` runs at once, here in the event loop where that may be, unless the thread
        has work: handing it over and back takes a quarter of a millisecond, which may be much of
        what it takes.
        """
        if brief and self.here:
            return work()
        return await asyncio.wrap_future(self._submit(work))

    def post(self, work: Callable[[], object]) -> None:
        """Run `work` after all that was asked for before, without waiting."""
        self._submit(work)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        job = self._pool.submit(work)
        self._under_way.add(job)
        # Called by whoever ends it, the thread as a rule; with nothing of the job left to do.
        job.add_done_callback(self._under_way.discard)
        return job

    def close(self) -> None:
        """Take no more work; what runs now ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
