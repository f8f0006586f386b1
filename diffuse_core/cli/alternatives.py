"""Several answers to one question, run side by side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.cli.answer import Answer
from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.cli.answer import Source
    from diffuse_core.domain.view import GenerateRequest

AT_ONCE = 4
"""Source that run side by side; each takes room on every Stage."""


def alternatives(request: GenerateRequest, count: int) -> list[Answer]:
    """`count` answers to be taken, each with its own seed; the first with that of `request`."""
    import msgspec

    replace, sampling = msgspec.structs.replace, request.sampling
    seeds = [alternative_seed(sampling.seed, index) for index in range(count)]
    return [Answer(replace(request, sampling=replace(sampling, seed=seed))) for seed in seeds]


async def take_all(
    client: Source,
    answers: list[Answer],
    show: Callable[[str], None] | None,
    complete: Callable[[], None] | None = None,
) -> None:
    """Run them all to their ends; `show` is given the text of the first as it comes.

    `complete` is called when that is all of it. One that found no room beside the others is asked
    for once more when those are done.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def take(answer: Answer) -> None:
        async with gate:
            await take_one(answer)

    async def take_one(answer: Answer) -> None:
        first = answer is answers[0]
        await answer.take(client, show if first else None, complete if first else None)

    tasks = [asyncio.ensure_future(take(answer)) for answer in answers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if all(answer.error is not None for answer in answers):
        return
    for answer in answers:
        if isinstance(answer.error, Refused) and not answer.begun:
            await take_one(answer)
