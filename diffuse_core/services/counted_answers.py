"""Answers that are counted on their way: for servers, whose operators want to know."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Failed, Finished, RouteChosen
from diffuse_core.errors import DiffuseError
from diffuse_core.services.tally import AnswerTally

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.ports import Answers


async def counted(
    tally: AnswerTally, events: AsyncGenerator[GenerateEvent, None]
) -> AsyncGenerator[GenerateEvent, None]:
    """The events of an answer; what came of it is in `tally`.

    One that began and is left before its end was cancelled by whoever asked: nobody is there any
    more to be told so in an event.
    """
    running = False
    try:
        async with aclosing(events):
            async for event in events:
                tally.take(event)
                if isinstance(event, RouteChosen | Finished):
                    running = isinstance(event, RouteChosen)
                yield event
    except (GeneratorExit, asyncio.CancelledError):
        if running:
            tally.finished["cancelled"] += 1
        raise
    except DiffuseError as error:
        tally.take(Failed(str(error), error.exit_code))
        raise
    except Exception:
        tally.failed[DiffuseError.exit_code] += 1
        raise


class CountedAnswers:
    """The answers of another, in its `tally`. Implements ports.Answers."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.tally = AnswerTally()

    async def view(self) -> NetworkView:
        """As of the other."""
        return await self._answers.view()

    def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """As of the other, event by event."""
        return counted(self.tally, self._answers.generate(request))

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """As of the other."""
        return await self._answers.token_texts(model, tokens)

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """As of the other."""
        return await self._answers.token_bytes(model, tokens)

    async def tool_format(self, model: str) -> ToolFormat | None:
        """As of the other."""
        return await self._answers.tool_format(model)
