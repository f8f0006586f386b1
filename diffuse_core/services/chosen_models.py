"""Answers for some models of a network only."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.selection import find_model, models_named

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.ports import Answers


class ChosenModels:
    """`ports.Answers` that knows no models but those of some names."""

    def __init__(self, answers: Answers, names: Sequence[str]) -> None:
        self._answers = answers
        self._names = tuple(names)

    async def view(self) -> NetworkView:
        """The network with the models that were chosen.

        Raises:
            Unreachable: no node of it answers.
        """
        view = await self._answers.view()
        chosen = {
            model.fingerprint for name in self._names for model in models_named(view.models, name)
        }
        models = tuple(model for model in view.models if model.fingerprint in chosen)
        return msgspec.structs.replace(view, models=models)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream a generation of one of them.

        Raises:
            ModelUnknown: it is none of them.
            DiffuseError: as services.client.
        """
        await self._check(request.model)
        async with aclosing(self._answers.generate(request)) as events:
            async for event in events:
                yield event

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """Texts of single tokens of a model, as `Tokenizer.token_text` gives them."""
        await self._check(model)
        return await self._answers.token_texts(model, tokens)

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """Bytes of single tokens of a model, as `Tokenizer.token_bytes` gives them."""
        await self._check(model)
        return await self._answers.token_bytes(model, tokens)

    async def tool_format(self, model: str) -> ToolFormat | None:
        """How a model writes calls of tools, as `Tokenizer.tool_format` tells it."""
        await self._check(model)
        return await self._answers.tool_format(model)

    async def _check(self, name: str) -> None:
        find_model(await self.view(), name)
