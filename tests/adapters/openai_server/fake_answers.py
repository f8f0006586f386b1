"""Answers without a network: models that say what a test tells them to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import TokenLogprobs
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
    from collections.abc import AsyncGenerator, Collection

    from diffuse_core.domain.decoding import FinishReason
    from diffuse_core.domain.tools import ToolFormat

PRINT = "ab" * 32
ROUTE = (RouteStep("11" * 32, Slice(0, 4)), RouteStep("22" * 32, Slice(4, 10)))
PROMPT_TOKENS = 7


def model(
    name: str = "tiny", fingerprint: str = PRINT, *, missing: tuple[Slice, ...] = ()
) -> ModelView:
    """A model of ten layers, servable when nothing of it is missing."""
    return ModelView(
        id=name,
        fingerprint=fingerprint,
        contract="bf16",
        layers=10,
        context=128,
        state="Incomplete" if missing else "Fragile",
        servable=not missing,
        missing=missing,
        replicas=(1,) * 10,
        min_replicas=0 if missing else 1,
        target_replicas=2,
        hosts=2,
    )


@dataclass
class FakeAnswers:
    """Implements ports.Answers. Each word of `says` is a token: its id is the word's length.

    After the first ones so many characters are held back as `holds` says.
    `fails` is raised after so many tokens as `after`. What is `between` comes after the first
    token. A request waits for `gate` before its first token, and for `pause` before its second;
    more than `refuse_beyond` at a time get `refusal`.
    """

    says: tuple[str, ...] = ("Hello", " wor", "ld")
    holds: tuple[int, ...] = ()
    models: tuple[ModelView, ...] = (model(), model("half", missing=(Slice(2, 5),)))
    finish: FinishReason = "stop"
    form: ToolFormat | None = None
    fails: Exception | None = None
    after: int = 0
    gate: asyncio.Event | None = None
    pause: asyncio.Event | None = None
    between: tuple[GenerateEvent, ...] = ()
    refuse_beyond: int | None = None
    refusal: Exception | None = None
    requests: list[GenerateRequest] = field(default_factory=list)
    running: int = 0
    most: int = 0
    closed: int = 0
    tokens: int = 0

    async def view(self) -> NetworkView:
        """All models."""
        return NetworkView(taken_at=1.0, me=None, nodes=(), models=self.models)

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """As many letters as the id says."""
        return {token: "x" * token for token in tokens}

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """The same as bytes; token 3 has none."""
        return {token: None if token == 3 else b"x" * token for token in tokens}

    async def tool_format(self, model: str) -> ToolFormat | None:
        """What the test says."""
        return self.form

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """What the test says."""
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.refuse_beyond is not None and self.running > self.refuse_beyond:
                assert self.refusal is not None
                raise self.refusal
            async for event in self._events(request):
                yield event
        finally:
            self.running -= 1
            self.closed += 1

    async def _events(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None and self.after < 0:
            raise self.fails
        yield RouteChosen(ROUTE, PROMPT_TOKENS)
        for place, word in enumerate(self.says):
            if self.fails is not None and place == self.after:
                raise self.fails
            if place == 1:
                for event in self.between:
                    yield event
                if self.pause is not None:
                    await self.pause.wait()
            await asyncio.sleep(0)
            self.tokens += 1
            logprobs = self._logprobs(request, len(word))
            held = self.holds[place] if place < len(self.holds) else 0
            yield TextDelta(word, (len(word),), logprobs, held=held)
        yield TextDelta("", (0,), self._logprobs(request, 0))
        count = len(self.says) + 1
        yield Finished(
            finish_reason=self.finish,
            usage=Usage(PROMPT_TOKENS, count),
            timings=Timings(0.1, 20.0, 0.2),
            route=ROUTE,
            events=("a stage was replaced",),
        )

    def _logprobs(self, request: GenerateRequest, token: int) -> tuple[TokenLogprobs, ...]:
        if request.logprobs is None:
            return ()
        top = tuple((token + place, -0.5 - place) for place in range(request.logprobs))
        return (TokenLogprobs(float("-inf") if token == 0 else -0.5, top),)
