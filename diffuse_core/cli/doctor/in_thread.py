"""Work that blocks, in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own, which ends with the process.

    What hangs (a dead NFS mount, a resolver without an answer) would keep a pool's threads, and
    with them the process, past every deadline and Ctrl+C.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, value: T | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        error: BaseException | None = None
        value: T | None = None
        try:
            value = work()
        except Exception as failed:  # noqa: BLE001 - it is raised where it is waited for
            error = failed
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error, value)

    threading.Thread(target=run, daemon=True, name="check").start()
    return await result
