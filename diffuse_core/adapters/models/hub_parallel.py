"""Doing several downloads at a time, while one thread alone writes what they bring.

Blocking reads cannot be broken off. So they run in threads of their own, which never touch a
file; who asked for them stays free to notice that it is no longer wanted.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
Job = Callable[[threading.Event], Generator[T, None, None]]
"""Brings something bit by bit; the event says that nobody wants it any more."""

POLL_S = 0.1
AHEAD = 4
"""Bits that each thread may be ahead of who takes them."""


class _NobodyWaitsError(Exception):
    """Raised inside a thread whose results are not wanted any more."""


@dataclass(frozen=True)
class _Bit(Generic[T]):
    value: T


@dataclass(frozen=True)
class _End:
    problem: BaseException | None


def gathered(
    jobs: Iterable[Job[T]], threads: int, idle: Callable[[], None]
) -> Generator[T, None, None]:
    """What all jobs bring, as it comes; the jobs start in order, `threads` of them at a time.

    `idle` is called when nothing came for a moment, and may raise to break it all off. The first
    exception of a job ends everything and is raised here.
    """
    waiting = deque(jobs)
    count = min(threads, len(waiting))
    found: queue.Queue[_Bit[T] | _End] = queue.Queue(count * AHEAD + 1)
    stopped = threading.Event()
    for _ in range(count):
        threading.Thread(
            target=_work, args=(waiting, found, stopped), name="hub", daemon=True
        ).start()
    try:
        while count:
            try:
                got = found.get(timeout=POLL_S)
            except queue.Empty:
                idle()
                continue
            if isinstance(got, _Bit):
                yield got.value
                continue
            if got.problem is not None:
                raise got.problem
            count -= 1
    finally:
        stopped.set()


def _work(
    waiting: deque[Job[T]], found: queue.Queue[_Bit[T] | _End], stopped: threading.Event
) -> None:
    with contextlib.suppress(_NobodyWaitsError):
        problem: BaseException | None = None
        try:
            while not stopped.is_set() and (job := _next(waiting)) is not None:
                _run(job, found, stopped)
        except _NobodyWaitsError:
            raise
        except BaseException as error:  # noqa: BLE001  (raised again by who waits for it)
            problem = error
        _put(found, _End(problem), stopped)


def _next(waiting: deque[Job[T]]) -> Job[T] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _run(job: Job[T], found: queue.Queue[_Bit[T] | _End], stopped: threading.Event) -> None:
    with contextlib.closing(job(stopped)) as bits:
        for bit in bits:
            _put(found, _Bit(bit), stopped)


def _put(
    found: queue.Queue[_Bit[T] | _End], item: _Bit[T] | _End, stopped: threading.Event
) -> None:
    while not stopped.is_set():
        with contextlib.suppress(queue.Full):
            found.put(item, timeout=POLL_S)
            return
    raise _NobodyWaitsError
