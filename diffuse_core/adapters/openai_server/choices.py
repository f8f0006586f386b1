"""The generations of one request, side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.adapters.openai_server.errors import told_of_failed
from diffuse_core.domain.view import Failed, Finished
from diffuse_core.errors import Refused, StagesLost

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType

    from diffuse_core.adapters.openai_server.gate import Gate
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest
    from diffuse_core.ports import Answers

AHEAD = 64
"""Events that wait to be told; beyond that the generations wait."""


@dataclass(frozen=True)
class _Broken:
    """One generation failed, and with it the request."""

    error: BaseException


class Choices:
    """What the generations of `requests` give, as it comes.

    The request is in by `gate` for one of them; more run beside it where others leave room. One
    that finds no room on the Hosts beside the others is asked for again when one of them is done.
    Leaving the context ends those that run.
    """

    def __init__(
        self, answers: Answers, requests: Sequence[GenerateRequest], gate: Gate, at_once: int
    ) -> None:
        self._answers = answers
        self._requests = requests
        self._gate = gate
        self._at_once = min(at_once, len(requests))
        self._due = deque(range(len(requests)))
        self._events: asyncio.Queue[tuple[int, GenerateEvent] | _Broken] = asyncio.Queue(AHEAD)
        self._tasks: list[asyncio.Task[None]] = []
        self._running = 0
        self._left = len(requests)

    async def __aenter__(self) -> Choices:
        self._begin(beside=False)
        # Nothing here waits, so that no cancellation comes between.
        while len(self._tasks) < self._at_once and await self._gate.try_enter():
            self._begin(beside=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def complete(self) -> bool:
        """Whether every generation was told to its end."""
        return self._left == 0

    async def next(self, within: float | None = None) -> tuple[int, GenerateEvent] | None:
        """The next event and the index of its choice; None when nothing came `within` seconds.

        Raises:
            ApiError, DiffuseError: a generation failed.
        """
        try:
            async with asyncio.timeout(within):
                told = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(told, _Broken):
            raise told.error
        if isinstance(told[1], Finished):
            self._left -= 1
        return told

    def _begin(self, *, beside: bool) -> None:
        self._running += 1
        task = asyncio.create_task(self._work())
        # Also of a task that is cancelled before it begins.
        task.add_done_callback(lambda _: self._end(beside=beside))
        self._tasks.append(task)

    def _end(self, *, beside: bool) -> None:
        if beside:
            self._gate.leave()

    async def _work(self) -> None:
        try:
            while self._due:
                index = self._due.popleft()
                if not await self._take(index):
                    self._due.append(index)
                    return
        except Exception as error:  # noqa: BLE001 - told where the events are waited for
            await self._events.put(_Broken(error))
        finally:
            self._running -= 1

    async def _take(self, index: int) -> bool:
        """Whether there was room for it."""
        begun = False
        try:
            async with aclosing(self._events_of(index)) as events:
                async for event in events:
                    begun = True
                    await self._events.put((index, event))
                    if isinstance(event, Finished):
                        return True
        except Refused:
            if begun or self._running == 1:
                raise
            return False
        raise StagesLost("the generation ended without a word; ask again")

    async def _events_of(self, index: int) -> AsyncGenerator[GenerateEvent, None]:
        async with aclosing(self._answers.generate(self._requests[index])) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise told_of_failed(event)
                yield event
