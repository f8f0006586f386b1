"""The measurement itself: rounds of answers over a live network, taken in turns."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.cli.bench.figures import KINDS, Row, decoding, reading, together
from diffuse_core.cli.bench.prompts import Prompts, words_of
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.pass_times import typical
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import DiffuseError, Refused, Unreachable, UsageError
from diffuse_core.services.measuring import hear
from diffuse_core.services.probing import Prober

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import ModelView, RouteStep, StageTiming
    from diffuse_core.ports import Clock
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.measuring import Heard
    from diffuse_core.services.observer import Observer

SHORT_PROMPT = 32
"""Tokens of the prompts of sessions that run at once: it is their decoding that is measured."""
SLACK = 8
"""Positions left over, as a prompt may not be met to the token."""
HOP_S = 5.0
MAX_EVENTS = 256
PLAIN, SPECULATIVE = "plain", "speculative"


@dataclass(frozen=True)
class Asked:
    """What to measure."""

    prompt_tokens: int
    tokens: int
    concurrency: tuple[int, ...]
    rounds: int
    seed: int


@dataclass
class Hop:
    """A Stage as the client sees it: the round trip to its node, None where it did not answer."""

    step: RouteStep
    rtt_s: float | None


@dataclass
class Results:
    """What there is so far; all of it once `complete`."""

    rows: dict[str, Row] = field(default_factory=dict)
    passes: dict[tuple[RouteStep, ...], list[tuple[StageTiming, ...]]] = field(
        default_factory=dict
    )
    """Of the plain answers, by the Route they took."""
    hops: list[Hop] = field(default_factory=list)
    routes: dict[tuple[RouteStep, ...], int] = field(default_factory=dict)
    prompt_lengths: set[int] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    healed: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    rounds: int = 0
    complete: bool = False

    @property
    def usual_route(self) -> tuple[RouteStep, ...]:
        """The one that most answers took; () before the first."""
        return max(self.routes, key=lambda taken: self.routes[taken], default=())

    def add(self, way: str, figures: dict[str, float]) -> None:
        """Figures of one round of a way."""
        for kind, figure in figures.items():
            row = self.rows.setdefault(f"{way}.{kind}", Row(*KINDS[kind], []))
            row.add(figure)


class Bench:
    """Measures one model of the network that `observer` found."""

    def __init__(
        self,
        observer: Observer,
        client: ClientService,
        model: ModelView,
        asked: Asked,
        results: Results,
        tell: Callable[[str], None],
    ) -> None:
        self._observer = observer
        self._client = client
        self._clock: Clock = observer.clock
        self._model = model
        self._name = f"{model.id}@{model.fingerprint}"
        self._asked = asked
        self._results = results
        self._tell = tell

    async def run(self) -> None:
        """All rounds, the first of which warms up and does not count.

        Raises:
            UsageError: prompt and answer do not fit the model.
            DiffuseError: the first answer of a round failed.
        """
        asked = self._asked
        room = self._model.context - SLACK
        if asked.prompt_tokens + asked.tokens > room:
            raise UsageError(
                f"{self._model.id} has {self._model.context} positions: --prompt-tokens "
                f"{asked.prompt_tokens} and --tokens {asked.tokens} are more; take at most {room} "
                "together"
            )
        self._tell("making prompts")
        words = await words_of(self._client, self._model, asked.seed)
        prompts = Prompts(self._client, self._name, words, asked.seed)
        lengths = {asked.prompt_tokens}
        if asked.concurrency:
            lengths.add(self._short)
        for tokens in sorted(lengths):
            await prompts.fit(tokens)
        for number in range(asked.rounds + 1):
            await self._round(number, prompts)
            self._results.rounds = number
        self._tell("hops")
        await self._measure_hops()
        self._results.complete = True

    @property
    def _short(self) -> int:
        return min(SHORT_PROMPT, self._asked.prompt_tokens)

    async def _round(self, number: int, prompts: Prompts) -> None:
        label = f"round {number} of {self._asked.rounds}" if number else "warm-up"
        for way in (PLAIN, SPECULATIVE):
            self._tell(f"{label}: one session, {way}")
            speculate = way == SPECULATIVE
            heard = await self._one(prompts.make(self._asked.prompt_tokens), speculate=speculate)
            if heard.error is not None:
                raise heard.error
            if number:
                self._note(way, heard)
        for count in self._asked.concurrency:
            self._tell(f"{label}: {count} session{'' if count == 1 else 's'} at once")
            asks = [self._one(prompts.make(self._short), speculate=False) for _ in range(count)]
            all_heard = await asyncio.gather(*asks)
            if number:
                self._note_together(count, all_heard)

    async def _one(self, prompt: str, *, speculate: bool) -> Heard:
        request = GenerateRequest(
            model=self._name,
            raw=prompt,
            max_tokens=self._asked.tokens,
            ignore_eos=True,
            speculate=speculate,
            timings=True,
        )
        return await hear(self._client, request, self._clock)

    def _note(self, way: str, heard: Heard) -> None:
        results = self._results
        if way == PLAIN:
            results.add(way, reading(heard))
            passes = typical(heard.passes, len(heard.route))
            results.passes.setdefault(heard.route, []).extend(passes)
        figures = decoding(heard)
        if way == PLAIN:
            figures.pop("tokens_per_pass", None)
        results.add(way, figures)
        results.prompt_lengths.add(heard.prompt_tokens)
        results.routes[heard.route] = results.routes.get(heard.route, 0) + 1
        self._note_events(heard)

    def _note_together(self, count: int, all_heard: list[Heard]) -> None:
        results = self._results
        results.add(f"sessions_{count}", together(all_heard))
        refused = sum(isinstance(heard.error, Refused) for heard in all_heard)
        failed = sum(heard.error is not None for heard in all_heard) - refused
        results.refused[count] = results.refused.get(count, 0) + refused
        results.failed[count] = results.failed.get(count, 0) + failed
        for heard in all_heard:
            self._note_events(heard)

    def _note_events(self, heard: Heard) -> None:
        results = self._results
        results.healed += heard.healed
        told = heard.events if heard.error is None else [*heard.events, str(heard.error)]
        results.events += told[: MAX_EVENTS - len(results.events)]

    async def _measure_hops(self) -> None:
        """Round trips from here to each Stage of the Route that was taken most."""
        route = self._results.usual_route
        prober = Prober(self._observer.links, self._clock, random.Random(self._asked.seed))  # noqa: S311
        for step in route:
            trip: float | None = None
            with contextlib.suppress(TimeoutError, Unreachable, DiffuseError):
                async with asyncio.timeout(HOP_S):
                    node = NodeId(bytes.fromhex(step.node))
                    link = await self._observer.links.to(node, self._observer.addresses(node))
                    probe = await prober.probe(link, times=5)
                    trip = None if probe is None else probe.rtt_s
            self._results.hops.append(Hop(step, trip))
