"""The client: turns a request into a stream of text, over whatever Route the network offers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import held_slices, holders, models
from diffuse_core.domain.decoding import DecodingParams, FinishReason
from diffuse_core.domain.identity import NodeId, node_text, short_text
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.records import record_node
from diffuse_core.domain.router import Candidate, choose_route
from diffuse_core.domain.selection import find_model, require_servable
from diffuse_core.domain.slices import gaps
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    RouteChosen,
    RouteStep,
    TextDelta,
    Timings,
    Usage,
)
from diffuse_core.errors import DiffuseError, ModelIncomplete, Refused, StagesLost, UsageError
from diffuse_core.services.bundles import BundleFetcher
from diffuse_core.services.run import ClientRun, SessionDesk, StageBlamed, StageDeclined

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.messages import TokenDrawn
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.ports import Storage, Tokenizer
    from diffuse_core.services.directory import Directory

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5


class _Attempts:
    """What was tried for one generation: whom to avoid, and why."""

    def __init__(self) -> None:
        self.avoid: set[NodeId] = set()
        self.events: list[str] = []
        self.problem: StageBlamed | StageDeclined | None = None

    def add(self, problem: StageBlamed | StageDeclined) -> None:
        self.avoid.add(problem.node)
        self.events.append(str(problem))
        self.problem = problem


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

        Closing the generator cancels the generation on every Stage.

        Raises:
            ModelUnknown: nobody holds such a model.
            ModelIncomplete: some range is held by no live node.
            UsageError: the prompt does not fit the model, or it has no chat template.
            Refused: no Host took the Session.
            StagesLost: a Stage was lost after tokens were shown.
        """
        clock = self._directory.clock
        started = clock.monotonic()
        model = self._model(request.model)
        tokenizer = await self._fetcher.tokenizer(model)
        # A hostile template may take seconds to be given up; the loop must not wait for it.
        prompt = await asyncio.to_thread(_encode, tokenizer, request)
        decoding = _decoding(tokenizer, request, model.shape.context - len(prompt))
        attempts = _Attempts()
        run, drawn = await self._begin(model, prompt, decoding, attempts)
        try:
            route = tuple(self._step(hop) for hop in run.route)
            yield RouteChosen(route, len(prompt))
            stream = tokenizer.stream(request.stop)
            first = last = clock.monotonic()
            count = 0
            finish: FinishReason | None = None
            while finish is None:
                count += 1
                last = clock.monotonic()
                finish = drawn.finish
                text = "" if finish == "stop" else stream.push(drawn.token)
                if stream.stopped:
                    finish = "stop"
                yield TextDelta(text, (drawn.token,))
                if finish is None:
                    drawn = await run.token()
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
                route=route,
                events=tuple(attempts.events),
            )
        except StageBlamed as error:
            self._suspect(error)
            raise StagesLost(f"{error}. Tokens shown so far are kept; ask again") from error
        finally:
            await run.close()

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

    async def _begin(
        self, model: ModelRef, prompt: tuple[int, ...], decoding: DecodingParams, tried: _Attempts
    ) -> tuple[ClientRun, TokenDrawn]:
        """Open a Session and get its first token, on another Route when a Stage fails us."""
        for _ in range(MAX_ATTEMPTS):
            try:
                route = self._route(model, tried)
            except ModelIncomplete as error:
                raise self._explained(error, model, tried) from error
            run = ClientRun(self._desk, route)
            try:
                fitted = self._fit(model, route, len(prompt), decoding)
                budget = len(prompt) + fitted.max_tokens
                await run.open(model.id, model.fingerprint, budget, len(prompt), fitted)
                await run.feed(prompt)
                return run, await run.token()
            except StageBlamed as error:
                await run.close()
                self._suspect(error)
                log.info("trying another route: %s", error)
                tried.add(error)
            except StageDeclined as error:
                await run.close()
                log.info("trying another route: %s", error)
                tried.add(error)
            except BaseException:
                await run.close()
                raise
        raise StagesLost(f"{MAX_ATTEMPTS} routes failed; the last because {tried.problem}")

    def _route(self, model: ModelRef, tried: _Attempts) -> list[Hop]:
        candidates = []
        doubtful = set(tried.avoid)
        for member in holders(self._directory.members(), model):
            record = member.record
            node = record_node(record)
            if member.liveness != "alive":
                doubtful.add(node)
            if record.holding is not None:
                candidates.append(
                    Candidate(
                        node=node,
                        slice=record.holding.slice,
                        rtt_s=0.0 if node == self._own else member.rtt_s,
                        step_s=record.load.step_ms / 1000,
                        sessions=record.load.sessions,
                        addresses=record.addresses,
                    )
                )
        addresses = {one.node: one.addresses for one in candidates}
        layers = model.shape.layers
        try:
            stages = choose_route(layers, candidates, doubtful, self._rng)
        except ModelIncomplete:
            # Without those that others suspect it cannot be done; most of them live.
            stages = choose_route(layers, candidates, tried.avoid, self._rng)
        return [Hop(node, addresses[node], part) for node, part in stages]

    def _fit(
        self, model: ModelRef, route: list[Hop], prompt: int, decoding: DecodingParams
    ) -> DecodingParams:
        """Ask for no more tokens than the Route's hosts say they can ever hold KV for."""
        budgets = {m.record.node: m.record.load.kv_budget for m in self._directory.members()}
        rooms = [
            budgets[hop.node] // (len(hop.part) * model.shape.kv_bytes)
            for hop in route
            if budgets.get(hop.node) and model.shape.kv_bytes
        ]
        room = min(rooms, default=prompt + decoding.max_tokens) - prompt
        if not 0 < room < decoding.max_tokens:
            return decoding
        return msgspec.structs.replace(decoding, max_tokens=room)

    def _explained(
        self, error: ModelIncomplete, model: ModelRef, tried: _Attempts
    ) -> DiffuseError:
        """No Route is left: say so in the words of what went wrong before, if anything did."""
        if isinstance(tried.problem, StageDeclined):
            return Refused(
                f"no replica took the session; {tried.problem}. Ask for fewer tokens, try again "
                "later, or add a host",
                tried.problem.reason,
            )
        if tried.problem is None:
            return error
        answering = [
            member.record.holding.slice
            for member in holders(self._directory.members(), model)
            if member.record.holding is not None and member.record.node not in tried.avoid
        ]
        names = ", ".join(sorted(map(short_text, tried.avoid)))
        ranges = ", ".join(map(str, gaps(model.shape.layers, answering)))
        return ModelIncomplete(
            f"no host that answers holds layers {ranges} of {model.shape.layers} (without "
            f"{names}: {tried.problem}). Try again in a moment, or add a host"
        )

    def _suspect(self, error: StageBlamed) -> None:
        """Have a node that seems dead probed; one that said what is wrong lives."""
        if error.reason == "lost" and error.node != self._own:
            self._directory.suspect(error.node)

    def _step(self, hop: Hop) -> RouteStep:
        here = hop.node == self._own
        return RouteStep(node_text(hop.node), hop.part, "local" if here else "direct")


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
