"""The client: turns a request into a stream of text, over whatever Route the network offers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.coverage import held_slices, models
from diffuse_core.domain.decoding import DecodingParams, FinishReason
from diffuse_core.domain.selection import find_model, require_servable
from diffuse_core.domain.slices import gaps
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    RouteChosen,
    TextDelta,
    Timings,
    Usage,
)
from diffuse_core.errors import ModelIncomplete, StagesLost, UsageError
from diffuse_core.services.bundles import BundleFetcher
from diffuse_core.services.generation import Generation
from diffuse_core.services.route_choice import RouteChoice
from diffuse_core.services.run import SessionDesk

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.ports import Storage, Tokenizer
    from diffuse_core.services.directory import Directory


class ClientService:
    """Generates on the network that `directory` knows."""

    def __init__(
        self,
        directory: Directory,
        cache: Storage,
        load_tokenizer: Callable[[Bundle], Tokenizer],
        rng: random.Random,
        own: NodeId | None = None,
    ) -> None:
        self._directory = directory
        self._fetcher = BundleFetcher(directory, cache, load_tokenizer)
        self._desk = SessionDesk(directory.links)
        self._rng = rng
        self._own = own

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream one generation: RouteChosen, TextDeltas, Finished.

        When a Stage is lost, the stream goes on over another Route; what was shown stays.
        Closing the generator cancels the generation on every Stage.

        Raises:
            ModelUnknown: nobody holds such a model.
            ModelIncomplete: some range is held by no live node, or by none that can be met.
            UsageError: the prompt does not fit the model, or it has no chat template.
            Refused: no Host took the Session.
            StagesLost: a Stage was lost after tokens were shown, and none could take its place.
        """
        clock = self._directory.clock
        started = clock.monotonic()
        model = self._model(request.model)
        choice = RouteChoice(self._directory, model, self._rng, self._own)
        # Else it would be the bundle that nobody gives.
        choice.require_a_way()
        tokenizer = await self._fetcher.tokenizer(model)
        # A hostile template may take seconds to be given up; the loop must not wait for it.
        prompt = await asyncio.to_thread(_encode, tokenizer, request)
        decoding = _decoding(tokenizer, request, model.shape.context - len(prompt))
        generation = Generation(self._desk, choice, clock, prompt, decoding)
        try:
            drawn = await generation.first()
            yield RouteChosen(generation.route, len(prompt))
            stream = tokenizer.stream(request.stop)
            first = last = clock.monotonic()
            count = 0
            finish: FinishReason | None = None
            while finish is None:
                count += 1
                last = clock.monotonic()
                finish = drawn.finish
                text = "" if finish == "stop" else stream.push(drawn.tokens[0])
                if stream.stopped:
                    finish = "stop"
                yield TextDelta(text, drawn.tokens)
                if finish is None:
                    drawn = await generation.next()
            if tail := stream.flush():
                yield TextDelta(tail)
            yield Finished(
                finish_reason=finish,
                usage=Usage(len(prompt), count),
                timings=Timings(
                    ttft_s=round(first - started, 4),
                    tokens_per_s=round((count - 1) / (last - first), 2) if count > 1 else 0.0,
                    total_s=round(last - started, 4),
                ),
                route=generation.route,
                events=tuple(generation.events),
            )
        finally:
            await generation.close()

    async def whole(self, request: GenerateRequest) -> tuple[str, tuple[int, ...], Finished]:
        """Run a generation to its end: text, token ids, and how it finished."""
        text: list[str] = []
        tokens: list[int] = []
        async with aclosing(self.generate(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    text.append(event.text)
                    tokens.extend(event.token_ids)
                elif isinstance(event, Finished):
                    return "".join(text), tuple(tokens), event
        raise StagesLost("the generation ended without a word; ask again")

    def _model(self, name: str) -> ModelRef:
        view = require_servable(find_model(self._directory.view(), name))
        members = self._directory.members()
        found = [
            ref
            for ref in models(members)
            if ref.fingerprint == view.fingerprint and ref.shape.layers == view.layers
        ]
        if not found:
            raise ModelIncomplete(f"the hosts of {view.id} just left; try again")

        def standing(ref: ModelRef) -> tuple[bool, int]:
            held = held_slices(members, ref)
            return not gaps(ref.shape.layers, held), len(held)

        # A record that lies about anything makes a model of its own beside the true one.
        return max(found, key=standing)


def _encode(tokenizer: Tokenizer, request: GenerateRequest) -> tuple[int, ...]:
    if request.raw is not None:
        prompt = tokenizer.encode(request.raw)
    else:
        prompt = tokenizer.encode_chat(request.messages)
    if not prompt:
        raise UsageError("the prompt is empty; give some text")
    return prompt


def _decoding(tokenizer: Tokenizer, request: GenerateRequest, room: int) -> DecodingParams:
    if room < 1:
        raise UsageError(
            f"the prompt takes all of the model's {tokenizer.context} positions; shorten it"
        )
    return DecodingParams(
        max_tokens=min(request.max_tokens, room),
        sampling=request.sampling,
        stop_ids=() if request.ignore_eos else tokenizer.stop_ids,
    )
