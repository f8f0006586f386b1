"""What the API does for each of its paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.openai_server.asked import chat_asked, text_asked
from diffuse_core.adapters.openai_server.choices import Choices
from diffuse_core.adapters.openai_server.completion import Completion
from diffuse_core.adapters.openai_server.errors import too_long
from diffuse_core.adapters.openai_server.event_stream import stream
from diffuse_core.adapters.openai_server.gate import Gate
from diffuse_core.adapters.openai_server.models import listed, servable_model, told
from diffuse_core.adapters.openai_server.parsing import chat_fields, text_fields
from diffuse_core.adapters.openai_server.shapes import ChatShape, TextShape
from diffuse_core.errors import PromptTooLong

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.asked import Asked
    from diffuse_core.adapters.openai_server.limits import ApiLimits
    from diffuse_core.adapters.openai_server.reply import Reply
    from diffuse_core.adapters.openai_server.shapes import Shape
    from diffuse_core.domain.view import ModelView
    from diffuse_core.ports import Answers, Clock


class Desk:
    """Takes the requests of all clients. Each method is an endpoint's Handler."""

    def __init__(self, answers: Answers, limits: ApiLimits, clock: Clock) -> None:
        self._answers = answers
        self._limits = limits
        self._clock = clock
        self._gate = Gate(limits)
        self._since = int(clock.wall())

    async def models(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """GET /v1/models."""
        del path, body
        await reply.json(listed(await self._answers.view(), self._since))

    async def model(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """GET /v1/models/{id}."""
        del body
        found = await servable_model(self._answers, path["id"])
        name = path["id"] if "@" in path["id"] else found.id
        await reply.json(told(name, found, self._since))

    async def chat(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """POST /v1/chat/completions."""
        del path
        await self._complete(chat_asked(chat_fields(body), self._limits), ChatShape(), reply)

    async def text(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """POST /v1/completions."""
        del path
        try:
            await self._complete(text_asked(text_fields(body), self._limits), TextShape(), reply)
        except PromptTooLong as error:
            raise too_long(error, "prompt") from None

    async def _complete(self, asked: Asked, shape: Shape, reply: Reply) -> None:
        limits = self._limits
        model = await servable_model(self._answers, asked.request.model)
        async with self._gate.entered():
            completion = await self._completion(asked, model, shape)
            running = Choices(self._answers, completion.requests, self._gate, limits.side_by_side)
            async with running:
                if asked.stream:
                    await stream(completion, running, reply, limits)
                    return
                whole = await completion.whole(running)
        reply.count(*completion.counts())
        await reply.json(whole)

    async def _completion(self, asked: Asked, model: ModelView, shape: Shape) -> Completion:
        calls = None
        if asked.request.tools:
            calls = await self._answers.tool_format(f"{model.id}@{model.fingerprint}")
        created = int(self._clock.wall())
        return Completion(self._answers, asked, model, shape, created, calls)
