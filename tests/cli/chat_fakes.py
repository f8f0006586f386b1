"""A network for chats: it answers as it is told, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    ModelView,
    NetworkView,
    RouteChosen,
    RouteStep,
    TextDelta,
    Timings,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

ROUTE = (RouteStep("ab" * 32, Slice(0, 2)), RouteStep("cd" * 32, Slice(2, 4), "relay"))


def model(name: str = "m", *, servable: bool = True, context: int = 2048) -> ModelView:
    return ModelView(
        id=name,
        fingerprint=name.encode().hex().ljust(64, "0"),
        contract="bf16",
        layers=4,
        context=context,
        state="Fragile" if servable else "Incomplete",
        servable=servable,
        missing=() if servable else (Slice(2, 4),),
        replicas=(1, 1, 1, 1) if servable else (1, 1, 0, 0),
        min_replicas=int(servable),
        target_replicas=2,
        hosts=2,
    )


def finished(prompt: int = 3, tokens: int = 2, audits: int = 0) -> Finished:
    return Finished(
        finish_reason="stop",
        usage=Usage(prompt, tokens),
        timings=Timings(ttft_s=0.1, tokens_per_s=20.0, total_s=0.2),
        route=ROUTE,
        audits=audits,
    )


class Network:
    """Implements ports.Answers: answer N is `answer N`, unless `script` says otherwise."""

    def __init__(self, *models: ModelView) -> None:
        self.models = models or (model(),)
        self.asked: list[list[str]] = []
        self.requests: list[GenerateRequest] = []
        self.script: Callable[[GenerateRequest], AsyncIterator[GenerateEvent]] | None = None
        self.failing: list[Exception | None] = []
        self.unreachable: Exception | None = None
        self.closed = 0

    async def view(self) -> NetworkView:
        if self.unreachable is not None:
            raise self.unreachable
        return NetworkView(taken_at=0.0, me=None, nodes=(), models=self.models)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        self.requests.append(request)
        self.asked.append([message.content for message in request.messages])
        error = self.failing.pop(0) if self.failing else None
        if error is not None:
            raise error
        try:
            script = self.script or self._usual
            async with contextlib.aclosing(script(request)) as events:
                async for event in events:
                    await asyncio.sleep(0)
                    yield event
        finally:
            self.closed += 1

    async def _usual(self, _request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        yield RouteChosen(ROUTE, 3)
        yield TextDelta("answer ", (1,))
        yield TextDelta(str(len(self.asked)), (2,))
        yield finished()

    async def token_texts(self, _model: str, tokens: Collection[int]) -> dict[int, str]:
        return {token: f"t{token}" for token in tokens}

    @contextlib.asynccontextmanager
    async def keep(self, *_: object) -> AsyncIterator[Network]:
        """In the place of wiring.keep_network."""
        yield self
