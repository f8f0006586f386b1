"""A race of dials, of which one is enough: the next is begun before the last gave up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from diffuse_core.domain.identity import short_text
from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable

    from diffuse_core.domain.identity import NodeId

STAGGER_S = 0.25
MAX_DIALS = 8


class Dialled(Protocol):
    """What a dial gives: a link, or a channel."""

    async def close(self) -> None:
        """End it."""
        ...


D = TypeVar("D", bound=Dialled)


async def race(
    dials: Iterable[Callable[[], Coroutine[Any, Any, D]]],
    failed: Callable[[Unreachable], None],
    enough: asyncio.Future[Any] | None = None,
    head_starts: Iterable[float] | None = None,
) -> AsyncGenerator[D, None]:
    """What those of `dials` that succeed give, as it comes, until the caller has enough.

    The first is begun at once, each other one when those before it failed or did not succeed
    within STAGGER_S (as RFC 8305 does for the addresses of one machine). To be closed by the
    caller, which gives up the dials that are not done; what came too late is closed.

    Args:
        dials: the likeliest first.
        failed: is called with each failure.
        enough: the race is over when this is done.
        head_starts: seconds for each dial in the place of STAGGER_S.
    """
    waiting = deque(dials)
    lead = itertools.repeat(STAGGER_S) if head_starts is None else iter(head_starts)
    running: set[asyncio.Task[D]] = set()
    others: set[asyncio.Future[Any]] = set() if enough is None else {enough}
    try:
        while waiting or running:
            pause = STAGGER_S
            if waiting and len(running) < MAX_DIALS:
                pause = next(lead, STAGGER_S)
                running.add(asyncio.create_task(waiting.popleft()(), name="dial"))
            more = bool(waiting) and len(running) < MAX_DIALS
            await asyncio.wait(
                running | others,
                timeout=pause if more else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            # What is there is given even so: two nodes that dialled each other would else both
            # close what the other one has taken for its own by now.
            for task in [task for task in running if task.done()]:
                running.discard(task)
                try:
                    made = task.result()
                except Unreachable as error:
                    failed(error)
                else:
                    yield made
            if enough is not None and enough.done():
                return
    finally:
        await _give_up(running)


async def _give_up(running: set[asyncio.Task[D]]) -> None:
    for task in running:
        task.cancel()
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            with contextlib.suppress(Unreachable):
                await outcome.close()


def none_answered(node: NodeId, problems: list[Unreachable]) -> Unreachable:
    """Why no address of a node led to it; caused by a TimeoutError where all were silent."""
    if not problems:
        return Unreachable(f"node {short_text(node)} advertises no address that can be dialled")
    if len(problems) == 1:
        return problems[0]
    causes = [problem.__cause__ for problem in problems]
    spoke = [cause for cause in causes if not isinstance(cause, TimeoutError)]
    error = Unreachable(
        f"node {short_text(node)} answers at none of its {len(problems)} addresses: "
        + "; ".join(map(str, problems))
    )
    error.__cause__ = (spoke or causes)[0]
    return error
