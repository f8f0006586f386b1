"""Answers that are counted on their way: for servers, whose operators want to know."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Failed
from diffuse_core.errors import DiffuseError
from diffuse_core.services.tally import AnswerTally

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.ports import Answers


class CountedAnswers:
    """The answers of another, in its `tally`. Implements ports.Answers."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.tally = AnswerTally()

    async def view(self) -> NetworkView:
        """As of the other."""
        return await self._answers.view()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """As of the other, event by event."""
        try:
            async with aclosing(self._answers.generate(request)) as events:
                async for event in events:
                    self.tally.take(event)
                    yield event
        except DiffuseError as error:
            self.tally.take(Failed(str(error), error.exit_code))
            raise

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """As of the other."""
        return await self._answers.token_texts(model, tokens)

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """As of the other."""
        return await self._answers.token_bytes(model, tokens)

    async def tool_format(self, model: str) -> ToolFormat | None:
        """As of the other."""
        return await self._answers.tool_format(model)
