"""Owned tasks: every background task has an owner that logs its failure and ends it."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)


WARN_S = 60.0


class Dropped:
    """Warns of things that were dropped: at most once in WARN_S, with how many they were."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._count = 0
        self._told = -math.inf

    def count(self, to: logging.Logger, now: float, what: str) -> None:
        """One more; `what` is said of the last one, `now` is in monotonic seconds."""
        self._count += 1
        if now - self._told < WARN_S:
            return
        to.warning("%s %s (%d since this was told last)", self._text, what, self._count)
        self._count, self._told = 0, now


class TaskOwner:
    """Starts tasks, keeps them from vanishing, and ends them all within a deadline."""

    def __init__(self, name: str, limit: int = 4096) -> None:
        self._name = name
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._dropped = Dropped(f"{name}: at its limit of tasks; dropped")

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None] | None:
        """Run `work` in a task of its own; None (and `work` dropped) when closed or full."""
        if self._closed or len(self._tasks) >= self._limit:
            work.close()
            if not self._closed:
                self._dropped.count(log, asyncio.get_running_loop().time(), name)
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
