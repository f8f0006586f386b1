"""A generation: one stream of tokens, over as many Routes as it takes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.identity import node_text, short_text
from diffuse_core.domain.view import RouteStep
from diffuse_core.errors import ModelIncomplete, StagesLost
from diffuse_core.services.route_choice import NoRoom
from diffuse_core.services.run import ClientRun, SessionDesk, StageBlamed, StageDeclined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.domain.messages import Hop, TokensDrawn
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link
    from diffuse_core.services.route_choice import RouteChoice

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Routes that are tried for the first token."""
MAX_LOSSES = 8
"""Stages that may be lost after it."""
MAX_REPLAYED = 4096
"""Tokens that are run again one by one; more would keep whoever reads waiting for too long."""
GRACE_S = 10.0
"""How long a Route is looked for when a Stage is lost: others move, a Sentinel is replaced."""
LOOK_S = 1.0


class Generation:
    """One generation. When a Stage is lost, another Session goes on where it ended.

    That is fed what this one was fed, in the same pieces, and draws by position: so the tokens
    are those that would have come. `events` tells what happened, in words.
    """

    def __init__(
        self,
        desk: SessionDesk,
        choice: RouteChoice,
        clock: Clock,
        prompt: Sequence[int],
        decoding: DecodingParams,
    ) -> None:
        self.events: list[str] = []
        self._desk = desk
        self._choice = choice
        self._clock = clock
        self._prompt = prompt
        self._decoding = decoding
        self._drawn: list[int] = []
        self._run: ClientRun | None = None
        self._losses = 0

    @property
    def route(self) -> tuple[RouteStep, ...]:
        """The Stages that run it now, or ran it last."""
        run = self._run
        if run is None:
            return ()
        return tuple(map(self._step, run.route, run.stages))

    def _step(self, hop: Hop, link: Link) -> RouteStep:
        if hop.node == self._choice.own:
            return RouteStep(node_text(hop.node), hop.part, "local")
        relayed = link.relayed_through is not None
        return RouteStep(node_text(hop.node), hop.part, "relay" if relayed else "direct")

    async def first(self) -> TokensDrawn:
        """The first token, on another Route when a Stage fails us.

        Raises:
            ModelIncomplete: some range is held by no live node.
            Refused: no Host took the Session.
            StagesLost: too many Routes failed.
        """
        for _ in range(MAX_ATTEMPTS):
            try:
                return await self._attempt()
            except ModelIncomplete as error:
                raise self._choice.explained(error) from error
            except (StageBlamed, StageDeclined) as error:
                self.events.append(str(error))
                await self._leave(error)
        raise StagesLost(f"{MAX_ATTEMPTS} routes failed; the last because {self.events[-1]}")

    async def next(self) -> TokensDrawn:
        """The next token, after going on over another Route if need be.

        Raises:
            StagesLost: a Stage was lost, and there is no way to go on.
        """
        assert self._run is not None  # noqa: S101  (`first` comes first)
        try:
            drawn = await self._run.token()
        except StageBlamed as error:
            return await self._go_on(error)
        self._drawn.append(drawn.tokens[0])
        return drawn

    async def close(self) -> None:
        """Free the Session on every Stage; bounded, and never raises."""
        if self._run is not None:
            await self._run.close()

    async def _attempt(self) -> TokensDrawn:
        """Open a Session on a Route, and get its next token."""
        model, choice = self._choice.model, self._choice
        rows, left = len(self._prompt) + len(self._drawn), self._decoding
        # An answer that was begun is not to end early because others have less room.
        need = len(self._prompt) + left.max_tokens
        route = choice.choose(need, all_of_it=bool(self._drawn))
        if self._drawn:
            tokens = left.max_tokens - len(self._drawn)
            left = msgspec.structs.replace(left, max_tokens=tokens)
        else:
            left = choice.fit(route, rows, left)
        run = self._run = ClientRun(self._desk, route)
        await run.open(model.id, model.fingerprint, rows + left.max_tokens, rows, left)
        await run.feed(self._prompt, self._drawn)
        drawn = await run.token()
        if not self._drawn:
            # What this Route has room for ends the answer, whichever Routes come after it.
            self._decoding = left
        self._drawn.append(drawn.tokens[0])
        return drawn

    async def _leave(self, problem: StageBlamed | StageDeclined) -> None:
        """Give a Route up."""
        log.info("trying another route: %s", problem)
        await self.close()
        if isinstance(problem, StageBlamed):
            await self._choice.lost(problem)
        else:
            self._choice.declined(problem)

    async def _go_on(self, lost: StageBlamed) -> TokensDrawn:
        """The next token, from a Session that takes the place of the one that was lost."""
        began = self._clock.monotonic()
        if len(self._drawn) > MAX_REPLAYED:
            raise _over(lost, f"{len(self._drawn)} tokens are too many to be run again")
        told = len(self.events)
        problem: StageBlamed | StageDeclined | None = lost
        while True:
            if problem is not None:
                self._count(lost, problem)
                await self._leave(problem)
            try:
                drawn = await self._attempt()
            except (StageBlamed, StageDeclined) as error:
                problem = error
                if str(error) not in self.events[told:]:
                    self.events.append(str(error))
            except ModelIncomplete as error:
                if self._clock.monotonic() - began >= GRACE_S:
                    raise self._no_way(lost, error) from error
                await asyncio.sleep(LOOK_S)
                await self._choice.reconsider()
                problem = None
            else:
                self.events.insert(told, self._how_it_went_on(lost, began))
                return drawn

    def _count(self, lost: StageBlamed, problem: StageBlamed | StageDeclined) -> None:
        if isinstance(problem, StageBlamed):
            self._losses += 1
            if self._losses > MAX_LOSSES:
                raise _over(lost, f"that is loss {self._losses} in one generation")

    def _no_way(self, lost: StageBlamed, error: ModelIncomplete) -> StagesLost:
        if isinstance(error, NoRoom):
            return _over(lost, str(error))
        missing = self._choice.missing()
        if missing:
            layers = self._choice.model.shape.layers
            return _over(lost, f"no host that answers holds layers {missing} of {layers}")
        return _over(lost, str(self._choice.explained(error)).removesuffix("."))

    def _how_it_went_on(self, lost: StageBlamed, began: float) -> str:
        assert self._run is not None  # noqa: S101
        taken = [hop.node for hop in self._run.route if hop.part.overlaps(lost.part)]
        names = ", ".join(map(short_text, taken))
        took = self._clock.monotonic() - began
        return f"{lost.name} was lost ({lost.why}); went on with {names} after {took:.1f} s"


def _over(lost: StageBlamed, why: str) -> StagesLost:
    return StagesLost(f"{lost}; {why}. Tokens shown so far are kept; ask again")
