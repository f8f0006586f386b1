"""The client: turns a request into a stream of text, over whatever Route the network offers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.coverage import held_slices, models
from diffuse_core.domain.decoding import DecodingParams, check_vocabulary
from diffuse_core.domain.own_layers import check_drawing, own_parts
from diffuse_core.domain.own_sessions import OwnSessions
from diffuse_core.domain.selection import find_model, require_servable
from diffuse_core.domain.slices import gaps
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    Healed,
    RouteChosen,
    TextDelta,
    Waiting,
)
from diffuse_core.errors import (
    DiffuseError,
    ModelIncomplete,
    PromptTooLong,
    StagesLost,
    UsageError,
)
from diffuse_core.services.answer_log import AnswerLog
from diffuse_core.services.audit import Auditor
from diffuse_core.services.audit_desk import AuditDesk
from diffuse_core.services.bundles import BundleFetcher
from diffuse_core.services.generation import Generation
from diffuse_core.services.quarantine import QuarantineBook
from diffuse_core.services.route_choice import RouteChoice
from diffuse_core.services.session_desk import SessionDesk
from diffuse_core.services.session_terms import Asked
from diffuse_core.services.spot_plan import SpotPlan
from diffuse_core.services.teller import Teller

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import Hop
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.ports import Clock, Storage, Tokenizer
    from diffuse_core.services.directory import Directory
    from diffuse_core.services.own_stages import OwnStages


class ClientService:
    """Generates on the network that `directory` knows."""

    def __init__(
        self,
        directory: Directory,
        cache: Storage,
        load_tokenizer: Callable[[Bundle], Tokenizer],
        rng: random.Random,
        own: NodeId | None = None,
        own_stages: OwnStages | None = None,
        quarantine: Storage | None = None,
    ) -> None:
        """`own_stages` run the layers that stay here in private mode.

        Whom audits found out is kept in `quarantine`, else in `cache`.
        """
        self._directory = directory
        self._fetcher = BundleFetcher(directory, cache, load_tokenizer)
        self._desk = SessionDesk(directory.links)
        self._rng = rng
        self._own = own
        self._sessions = OwnSessions()
        self._own_stages = own_stages
        self._audits = AuditDesk(self._desk)
        self.quarantine = QuarantineBook(quarantine or cache, directory.clock)
        if own_stages is not None:
            own_stages.answer_to(self._desk.on_answer)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream one generation: RouteChosen, a TextDelta for each token, Finished.

        When a Stage is lost, another takes its place; what was shown stays, and Healed is told
        before the next token. An error brings what happened before it as its `events`.
        The answer is complete with Finished. After it as many Audited come as it says; while a
        long answer is given, one comes at once that accuses a node.
        Closing the generator cancels the generation on every Stage, and audits.

        Raises:
            ModelUnknown: nobody holds such a model.
            ModelIncomplete: some range is held by no live node, or by none that can be met.
            UsageError: the prompt does not fit the model, or it has no chat template; or it
                cannot be private in this way, or here.
            Refused: no Host took the Session.
            StagesLost: a Stage was lost after tokens were shown, and none could take its place.
        """
        clock = self._directory.clock
        started = clock.monotonic()
        model = self._model(request.model, whole=not request.private)
        own, parts = self._own_part(request, model)
        choice = self._choice(model, () if own is None else own.hops(parts))
        # Else it would be the bundle that nobody gives.
        choice.require_a_way()
        check_vocabulary(request.sampling, model.shape.vocab)
        tokenizer = await self._fetcher.tokenizer(model)
        # A hostile template may take seconds to be given up; the loop must not wait for it.
        prompt = await asyncio.to_thread(_encode, tokenizer, request)
        decoding = _decoding(tokenizer, request, model.shape.context - len(prompt))
        answer = AnswerLog(prompt, decoding, model.shape.vocab)
        if own is not None:
            await own.ready(model, parts, answer.budget)
            started = clock.monotonic()
        # Guesses are ids: they go with the rows, to whoever draws.
        guess = request.speculate and len(parts) != 1
        plan = SpotPlan(request.audit, model.shape.hidden, self._rng)
        asked = Asked(model.id, model.fingerprint, guess, request.timings, own, plan.spots)
        generation = Generation(self._desk, choice, clock, answer, asked, request.grace_s)
        text = tokenizer.stream(request.stop, calls=bool(request.tools))
        teller = Teller(text, started, timed=request.timings)
        auditor = Auditor(self._audits, choice, self.quarantine, plan, answer, own)
        try:
            await generation.open()
            yield RouteChosen(generation.route, len(prompt))
            async with aclosing(_told(generation, teller, auditor, clock, len(prompt))) as events:
                async for event in events:
                    yield event
        except DiffuseError as error:
            error.events = tuple(generation.events)
            raise
        finally:
            choice.release()
            try:
                # First: that Stages hold nothing any more is not to be taken for their fault.
                await auditor.pause()
            finally:
                await generation.close()

    def _choice(self, model: ModelRef, fixed: Sequence[Hop]) -> RouteChoice:
        return RouteChoice(
            self._directory,
            model,
            self._rng,
            self._own,
            self._sessions,
            fixed,
            self.quarantine,
        )

    async def whole(self, request: GenerateRequest) -> tuple[str, tuple[int, ...], Finished]:
        """Run a generation to its end: text, token ids, and how it finished.

        Of its audits nothing is told.
        """
        text: list[str] = []
        tokens: list[int] = []
        finished: Finished | None = None
        async with aclosing(self.generate(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    text.append(event.text)
                    tokens.extend(event.token_ids)
                elif isinstance(event, Finished):
                    finished = event
        if finished is None:
            raise StagesLost("the generation ended without a word; ask again")
        return "".join(text), tuple(tokens), finished

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """Texts of single tokens of a model, as `Tokenizer.token_text` gives them."""
        tokenizer = await self._fetcher.tokenizer(self._model(model, whole=False))
        return {token: tokenizer.token_text(token) for token in tokens}

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """Bytes of single tokens of a model, as `Tokenizer.token_bytes` gives them."""
        tokenizer = await self._fetcher.tokenizer(self._model(model, whole=False))
        return {token: tokenizer.token_bytes(token) for token in tokens}

    async def tool_format(self, model: str) -> ToolFormat | None:
        """How a model writes calls of tools, as `Tokenizer.tool_format` tells it.

        Raises:
            ModelUnknown: nobody holds such a model.
            ModelIncomplete: some range of it is held by no live node.
        """
        tokenizer = await self._fetcher.tokenizer(self._model(model))
        return tokenizer.tool_format

    def _own_part(
        self, request: GenerateRequest, model: ModelRef
    ) -> tuple[OwnStages | None, tuple[Slice, ...]]:
        """What runs here of a generation: nothing, unless it is private."""
        if not request.private and not request.private_tail:
            return None, ()
        if self._own_stages is None:
            raise UsageError(
                "private mode needs a program that runs layers itself: use `diffuse query` or "
                "`diffuse chat` with --private"
            )
        parts = own_parts(model.shape.layers, request.private, request.private_tail)
        check_drawing(request.sampling, tail=request.private_tail > 0)
        return self._own_stages, parts

    def _model(self, name: str, *, whole: bool = True) -> ModelRef:
        view = find_model(self._directory.view(), name)
        if whole:
            require_servable(view)
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


async def _told(
    generation: Generation, teller: Teller, auditor: Auditor, clock: Clock, prompt: int
) -> AsyncGenerator[GenerateEvent, None]:
    """What a generation of so many tokens of `prompt` gives, to its last audit."""
    while teller.finish is None:
        event = await generation.next()
        if isinstance(event, Healed | Waiting):
            yield event
            continue
        for delta in teller.deltas(event, len(generation.route), clock.monotonic()):
            yield delta
        for found in auditor.look(generation.run):
            yield found
    if tail := teller.tail():
        yield TextDelta(tail)
    await auditor.pause()
    for found in auditor.news():
        yield found
    places = auditor.due(generation.run)
    yield Finished(
        finish_reason=teller.finish,
        usage=teller.usage(prompt),
        timings=teller.timings(),
        route=generation.route,
        events=tuple(generation.events),
        audits=len(places),
    )
    if generation.run is not None:
        async with aclosing(auditor.audit(generation.run, places)) as audits:
            async for found in audits:
                yield found


def _encode(tokenizer: Tokenizer, request: GenerateRequest) -> tuple[int, ...]:
    if request.raw is None:
        prompt = tokenizer.encode_chat(request.messages, request.tools)
    elif request.tools:
        raise UsageError("a raw prompt has no tools; send messages, or leave the tools out")
    else:
        prompt = tokenizer.encode(request.raw)
    if not prompt:
        raise UsageError("the prompt is empty; give some text")
    return prompt


def _decoding(tokenizer: Tokenizer, request: GenerateRequest, room: int) -> DecodingParams:
    if room < 1:
        raise PromptTooLong(
            f"the prompt takes all of the model's {tokenizer.context} positions; shorten it"
        )
    return DecodingParams(
        max_tokens=min(request.max_tokens, room),
        sampling=request.sampling,
        stop_ids=() if request.ignore_eos else tokenizer.stop_ids,
        min_tokens=min(request.min_tokens, request.max_tokens, room),
        logprobs=request.logprobs,
    )
