"""A stage for services: they run in virtual time, and whatever they log as an error is one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tests.fuzz.virtual_loop import VirtualClock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_TASKS = 400
_CORE = logging.getLogger("diffuse_core")


class _Errors(logging.Handler):
    """Keeps what was logged as an error, and what the loop was told."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException | str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(error or record.getMessage())

    def on_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(context.get("exception") or context["message"])

    def check(self) -> None:
        for found in self.found:
            raise AssertionError("a service failed") from (
                found if isinstance(found, BaseException) else RuntimeError(found)
            )


def play(act: Callable[[VirtualClock], Awaitable[str]]) -> str:
    """Run `act` in a loop of its own, at the end of which no task may be left.

    Raises:
        AssertionError: something failed in a task or a handler, or was left running.
    """
    loop = VirtualLoop()
    errors = _Errors()
    loop.set_exception_handler(errors.on_loop)
    _CORE.addHandler(errors)
    try:
        outcome = loop.run_until_complete(_all_of(act, VirtualClock(loop)))
        errors.check()
        return outcome
    finally:
        _CORE.removeHandler(errors)
        _end(loop)


async def _all_of(act: Callable[[VirtualClock], Awaitable[str]], clock: VirtualClock) -> str:
    outcome = await act(clock)
    await settle()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left running: {sorted(task.get_name() for task in left)}"
    return outcome


def _end(loop: VirtualLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def settle(seconds: float = 0.001) -> None:
    """Let everything happen that can happen in so much virtual time."""
    await asyncio.sleep(seconds)
    assert len(asyncio.all_tasks()) <= MAX_TASKS
