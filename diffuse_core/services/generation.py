"""A generation: one stream of tokens, over as many Routes as it takes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId, node_text
from diffuse_core.domain.view import Healed, RouteStep, Waiting
from diffuse_core.errors import ModelIncomplete, StagesLost
from diffuse_core.services.links import DIAL_ALL_S
from diffuse_core.services.losses import (
    Problem,
    StageBlamed,
    StageDeclined,
    passed_over_text,
    went_on_text,
)
from diffuse_core.services.route_choice import NoRoom
from diffuse_core.services.run import ClientRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from diffuse_core.domain.messages import Hop, TokensDrawn
    from diffuse_core.ports import Clock
    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.route_choice import RouteChoice
    from diffuse_core.services.session_desk import SessionDesk
    from diffuse_core.services.session_terms import Asked

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Routes on which a Session is tried to be opened."""
HASTY = 3
"""As often others are tried rather soon."""
PATIENCE_S = 2.5
"""How long it may take then to open a direct link: a machine that is frozen takes connections."""
MAX_LOSSES = 8
"""How often a generation may be mended."""
MOST_GRACE_S = 3600.0
"""A Route is looked for no longer when a Stage is lost, whatever was asked for."""
LOOK_S = 1.0


class Generation:
    """One generation. When Stages are lost, others take their places, and it goes on.

    Only what was lost is computed again, in the same pieces, and tokens are drawn by position: so
    they are those that would have come. `events` tells what happened, in words. A Stage that is
    lost is waited for up to `grace_s` seconds where nobody can take its place.
    """

    def __init__(
        self,
        desk: SessionDesk,
        choice: RouteChoice,
        clock: Clock,
        answer: AnswerLog,
        asked: Asked,
        grace_s: float,
    ) -> None:
        self.events: list[str] = []
        self._desk = desk
        self._choice = choice
        self._clock = clock
        self._answer = answer
        self._asked = asked
        self._grace_s = grace_s
        self._run: ClientRun | None = None
        self._rounds = 0
        self._began = 0.0
        self._serving: set[NodeId] = set()
        """The nodes of the Route over which tokens came last."""
        self._lost: list[StageBlamed] = []
        """Losses of these, since which no token came."""
        self._failed: list[str] = []
        """What went wrong in mending them: told only when that was in vain."""
        self._guilty: set[NodeId] = set()
        self._ready: deque[Healed | TokensDrawn] = deque()
        self._mending: AsyncGenerator[Waiting, None] | None = None

    @property
    def run(self) -> ClientRun | None:
        """Its Session, as long as it is open."""
        return self._run

    @property
    def route(self) -> tuple[RouteStep, ...]:
        """The Stages that run it now, or ran it last."""
        return tuple(self._steps()) if self._run is not None else ()

    def _steps(self) -> Iterator[RouteStep]:
        assert self._run is not None  # noqa: S101  (whoever asks has seen to it)
        for index, hop in enumerate(self._run.route):
            link = self._run.stages.get(index)
            if hop.node == self._choice.own:
                yield RouteStep(node_text(hop.node), hop.part, "local")
            elif link is not None and link.relayed_through is not None:
                yield RouteStep(node_text(hop.node), hop.part, "relay")
            else:
                yield RouteStep(node_text(hop.node), hop.part, "direct")

    async def open(self) -> None:
        """Open a Session, on another Route when a Stage fails us.

        Raises:
            ModelIncomplete: some range is held by no live node.
            Refused: no Host took the Session.
            StagesLost: too many Routes failed.
        """
        answer, choice = self._answer, self._choice
        last: Problem | None = None
        for attempt in range(MAX_ATTEMPTS):
            try:
                route = await self._first_route()
                # What this Route has room for ends the answer, whichever Stages come after it.
                answer.decoding = choice.fit(route, self._asked, answer)
                await self._open_on(route, PATIENCE_S if attempt < HASTY else DIAL_ALL_S)
            except ModelIncomplete as error:
                raise choice.explained(error) from error
            except (StageBlamed, StageDeclined) as error:
                assert self._run is not None  # noqa: S101  (it was about to be opened)
                more = [one for one in self._run.troubles() if one.node != error.node]
                self.events += map(passed_over_text, (error, *more))
                last = error
                await self.close()
                await self._tell([error, *more])
            else:
                self._serving = self._on_route()
                return
        raise StagesLost(f"{MAX_ATTEMPTS} routes failed; the last because {last}")

    async def _first_route(self) -> list[Hop]:
        try:
            return self._choice.choose(self._answer.budget)
        except ModelIncomplete:
            # Of those that were given up soon some may just be slow.
            if not await self._choice.slow_ones_came():
                raise
            return self._choice.choose(self._answer.budget)

    async def _open_on(self, route: Sequence[Hop], patience: float) -> None:
        self._run = ClientRun(self._desk, route, self._asked, self._answer, patience)
        await self._run.open()

    async def next(self) -> TokensDrawn | Healed | Waiting:
        """The next tokens; or that a Stage is waited for, or that the answer went on after a loss.

        Raises:
            StagesLost: a Stage was lost, and there is no way to go on.
        """
        if self._ready:
            return self._ready.popleft()
        while True:
            if self._mending is not None:
                async for waiting in self._mending:
                    return waiting
                self._mending = None
            assert self._run is not None  # noqa: S101  (`open` comes first)
            came_before = self._answer.unread
            try:
                drawn = await self._run.token()
            except (StageBlamed, StageDeclined) as error:
                self._mending = self._mend(error)
                continue
            if came_before:
                return drawn
            if not self._lost:
                if self._failed:
                    self._failed, self._serving = [], self._on_route()
                return drawn
            self._ready.extend((*self._healed(), drawn))
            return self._ready.popleft()

    async def close(self) -> None:
        """Free the Session on every Stage; bounded, and never raises."""
        if self._mending is not None:
            await self._mending.aclose()
        if self._run is not None:
            await self._run.close()

    # --- after a loss -----------------------------------------------------------------

    async def _mend(self, problem: Problem) -> AsyncGenerator[Waiting, None]:
        """Have others take the places of the Stages that were lost, or wait for whoever can."""
        began, rounds, waits = self._clock.monotonic(), 0, False
        if not self._lost:
            self._began = began
        problems = [problem]
        while True:
            assert self._run is not None  # noqa: S101
            problems += self._run.troubles()
            if self._answer.finished:
                return
            # While we wait for who was lost it may be found starting, and not answer yet.
            late = self._clock.monotonic() - began >= min(self._grace_s, MOST_GRACE_S)
            await self._note(problems, counted=late or not waits)
            rounds += 1
            if rounds > 2:
                # Ways that were lost may take a moment to come back.
                await asyncio.sleep(LOOK_S)
            try:
                await self._repair()
            except (StageBlamed, StageDeclined) as error:
                problems = [error]
            except ModelIncomplete as error:
                if late:
                    raise self._no_way(error) from error
                if not waits and self._lost:
                    yield self._waiting()
                await asyncio.sleep(LOOK_S)
                await self._choice.reconsider()
                problems, rounds, waits = [], 0, True
            else:
                return

    def _waiting(self) -> Waiting:
        lost = self._lost[0]
        seconds = min(self._grace_s, MOST_GRACE_S)
        return Waiting(lost=_step_of(lost), why=lost.cause, seconds=seconds)

    async def _note(self, problems: Sequence[Problem], *, counted: bool) -> None:
        """Count losses, and find out who is to blame."""
        for problem in problems:
            log.info("a stage is to be replaced: %s", problem)
            if isinstance(problem, StageBlamed) and self._is_told(problem):
                continue
            if isinstance(problem, StageBlamed) and problem.node in self._serving:
                self._lost.append(problem)
            elif (told := passed_over_text(problem)) not in self._failed:
                self._failed.append(told)
        if counted and any(isinstance(problem, StageBlamed) for problem in problems):
            self._rounds += 1
            if self._rounds > MAX_LOSSES:
                raise self._over(f"that is loss {self._rounds} in one generation")
        await self._tell(problems)

    def _is_told(self, problem: StageBlamed) -> bool:
        """Whether it says nothing new; both ends of one lost way accuse each other."""
        return any(lost.node in (problem.node, problem.accuser) for lost in self._lost)

    async def _tell(self, problems: Sequence[Problem]) -> None:
        choice = self._choice
        blamed = [problem for problem in problems if isinstance(problem, StageBlamed)]
        for problem in problems:
            if isinstance(problem, StageDeclined):
                choice.declined(problem)
        for guilty in await asyncio.gather(*map(choice.lost, blamed)):
            if guilty is not None:
                self._guilty.add(guilty)

    async def _repair(self) -> None:
        """Go on over a Route on which as many Stages stay as can."""
        assert self._run is not None  # noqa: S101
        run, choice, need = self._run, self._choice, self._answer.budget
        for kept in self._who_may_stay():
            try:
                route = choice.choose(need, all_of_it=True, kept=kept)
            except ModelIncomplete:
                continue
            await run.reroute(route, {NodeId(hop.node) for hop in kept})
            self._guilty.clear()
            return
        route = choice.choose(need, all_of_it=True)
        await run.close()
        await self._open_on(route, PATIENCE_S)
        self._guilty.clear()

    def _who_may_stay(self) -> Iterator[list[Hop]]:
        """The Stages that keep their places; first without those to blame, then the accusers.

        At last all but one: perhaps it alone holds lost layers as well.
        """
        assert self._run is not None  # noqa: S101
        holding = [
            hop
            for hop in self._run.route
            if hop.node not in self._run.gone and not self._choice.is_barred(hop.node)
        ]
        accusers = {one.accuser for one in self._lost if one.node in self._guilty}
        for leaving in (self._guilty, accusers - {None}):
            kept = [hop for hop in holding if hop.node not in leaving]
            if kept and (leaving or len(kept) == len(holding)):
                yield kept
        staying = [hop for hop in holding if hop.node not in self._guilty]
        for one in sorted(staying, key=lambda hop: len(hop.part)):
            kept = [hop for hop in staying if hop is not one]
            if kept and not self._asked.is_own(one.node):
                yield kept

    def _no_way(self, error: ModelIncomplete) -> StagesLost:
        if isinstance(error, NoRoom):
            return self._over(str(error))
        missing = self._choice.missing()
        if missing:
            layers = self._choice.model.shape.layers
            return self._over(f"no host that answers holds layers {missing} of {layers}")
        return self._over(str(self._choice.explained(error)).removesuffix("."))

    def _over(self, why: str) -> StagesLost:
        self.events += [*(lost.was_lost for lost in self._lost), *self._failed]
        first = str(self._lost[0]) if self._lost else self._failed[0]
        return StagesLost(f"{first}; {why}. Tokens shown so far are kept; ask again")

    def _on_route(self) -> set[NodeId]:
        return set() if self._run is None else {NodeId(hop.node) for hop in self._run.route}

    def _healed(self) -> Iterator[Healed]:
        """What is told of the losses now that tokens come again."""
        assert self._run is not None  # noqa: S101
        seconds, route = self._clock.monotonic() - self._began, self.route
        for lost in self._lost:
            places = [i for i, step in enumerate(route) if step.slice.overlaps(lost.part)]
            taken = [NodeId(self._run.route[index].node) for index in places]
            self.events.append(went_on_text(lost, taken, seconds))
            yield Healed(
                lost=_step_of(lost),
                why=lost.cause,
                replaced_by=tuple(route[index] for index in places),
                seconds=round(seconds, 3),
                route=route,
            )
        self._lost, self._failed = [], []
        self._serving = self._on_route()


def _step_of(lost: StageBlamed) -> RouteStep:
    relayed = lost.relayed_through is not None
    return RouteStep(node_text(lost.node), lost.part, "relay" if relayed else "direct")
