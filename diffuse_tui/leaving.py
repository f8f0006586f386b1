"""Leaving: in order when a signal says so, and not without asking when something would end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from diffuse_core.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from textual.app import App

HARD_EXIT_S = 4.0
"""After a signal: longer than leaving in order ever takes."""
RESTORE_S = 0.5
"""Then: for giving the terminal back, which one that does not read never lets happen."""

_CODES = {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": EXIT_INTERRUPTED}


class Signals:
    """Takes the process' signals between `take` and `give_back`.

    Once one came, the process ends in bounded time, whatever the app does until `over`: a terminal
    that does not read lets it draw no more, and nothing else of it happens then.

    Args:
        leave: Called with the exit status: leave in order.
        restore: Called in a thread when that takes too long, right before the process ends.
    """

    def __init__(self, leave: Callable[[int], None], restore: Callable[[], None]) -> None:
        self._leave = leave
        self._restore = restore
        self._hard_exit: threading.Timer | None = None

    def take(self) -> None:
        """Leave with SIGTERM, SIGHUP and SIGINT from now on."""
        loop = asyncio.get_running_loop()
        for name, code in _CODES.items():
            number = getattr(signal, name, None)
            # Not on Windows, not outside the main thread: there the default must do.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if number is not None:
                    loop.add_signal_handler(number, self._leave, code)
                    # In the place of one that does nothing: the loop is told all the same.
                    signal.signal(number, partial(self._came, code))
                    signal.siginterrupt(number, False)

    def give_back(self) -> None:
        """Whoever started the app takes signals again."""
        loop = asyncio.get_running_loop()
        for name in _CODES:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if hasattr(signal, name):
                    loop.remove_signal_handler(getattr(signal, name))

    def over(self) -> None:
        """The app has left in order."""
        if self._hard_exit is not None:
            self._hard_exit.cancel()

    def _came(self, code: int, *_: object) -> None:
        """The loop leaves in order if it runs; where it waits, a thread ends the process."""
        if self._hard_exit is None:
            self._hard_exit = threading.Timer(HARD_EXIT_S, self._leave_now, (code,))
            self._hard_exit.daemon = True
            self._hard_exit.start()

    def _leave_now(self, code: int) -> None:
        restoring = threading.Thread(target=self._restore, daemon=True)
        restoring.start()
        restoring.join(RESTORE_S)
        os._exit(code)


LeavingQuestion = Callable[[], "Coroutine[Any, Any, bool] | None"]
"""Asked before the app is left: None when there is nothing to ask, else whether to leave."""


async def may_leave(asks: Sequence[Coroutine[Any, Any, bool]]) -> bool:
    """Ask one after the other; the first no ends it."""
    try:
        for ask in asks:
            if not await ask:
                return False
        return True
    finally:
        for ask in asks:
            ask.close()


async def ask_about_answer(app: App[Any]) -> bool:
    """Leaving would end an answer that is being written."""
    from diffuse_tui.screens.question import Answer, Question

    text = "An answer is being written. Leaving ends it, here and on every host."
    answers = (Answer("q", "quit"), Answer("s", "stay"))
    return await app.push_screen_wait(Question("Quit?", text, answers)) == "q"
