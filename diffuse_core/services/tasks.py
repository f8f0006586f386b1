"""Owned tasks: every background task has an owner that logs its failure and ends it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)


class TaskOwner:
    """Starts tasks, keeps them from vanishing, and ends them all within a deadline."""

    def __init__(self, name: str, limit: int = 4096) -> None:
        self._name = name
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None] | None:
        """Run `work` in a task of its own; None (and `work` dropped) when closed or full."""
        if self._closed or len(self._tasks) >= self._limit:
            work.close()
            if not self._closed:
                log.warning("%s: at its limit of tasks; dropped %s", self._name, name)
            return None
        task = asyncio.create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def close(self, deadline: float = 5.0) -> None:
        """Cancel what still runs and wait for it, at most `deadline` seconds."""
        self._closed = True
        mine = asyncio.current_task()
        pending = [task for task in self._tasks if task is not mine]
        for task in pending:
            task.cancel()
        if pending:
            _, late = await asyncio.wait(pending, timeout=deadline)
            for task in late:
                log.error("%s did not end within %.0f s", task.get_name(), deadline)
