"""Audits of one generation: which Stages, when, and for how long; see audit_case for how.

They follow the answer, which is complete by then. What is long is audited on the way as well, so
that a liar is not heard out first: everything there is, at a number of tokens that doubles each
time; so all that is computed again is less than twice the answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.narration import audit_text
from diffuse_core.services.audit_case import AuditCase, Means

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from diffuse_core.domain.view import Audited
    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.audit_desk import AuditDesk
    from diffuse_core.services.own_stages import OwnStages
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.services.route_choice import RouteChoice
    from diffuse_core.services.run import ClientRun
    from diffuse_core.services.spot_plan import SpotPlan

log = logging.getLogger(__name__)

AUDIT_S = 60.0
"""All audits after an answer take no longer, nor do those at one moment on the way."""
ON_THE_WAY = 256
"""Tokens of an answer that has its first audit on the way; the next ones at twice as many each."""
LET_GO_S = 0.05
"""What is under way may take so long to end: a node that reads nothing takes no farewell."""


class Auditor:
    """Audits the Stages of one generation while its Session is open."""

    def __init__(
        self,
        answers: AuditDesk,
        choice: RouteChoice,
        book: QuarantineBook,
        plan: SpotPlan,
        answer: AnswerLog,
        own: OwnStages | None = None,
    ) -> None:
        """Stages of our `own` are not audited, nor those beside them."""
        self._means = Means(answers, choice, book, plan, answer)
        self._own = None if own is None else own.node
        self._next = ON_THE_WAY
        self._under_way: asyncio.Task[None] | None = None
        self._news: list[Audited] = []
        self._accused: set[int] = set()

    def due(self, run: ClientRun | None) -> list[int]:
        """The places of the Stages that are to be audited, as chance has it."""
        if run is None or not self._means.log.drawn:
            return []
        return [
            index
            for index in range(len(run.route))
            if self._means.plan.takes(index)
            and index not in self._accused
            and not self._is_private(run, index)
        ]

    def _is_private(self, run: ClientRun, index: int) -> bool:
        """Whether it runs here, or beside a Stage that does: nobody else can take its place.

        Nor is a last Stage audited then: the answer's tokens would go to one more node.
        """
        if self._own is None:
            return False
        beside = run.route[max(0, index - 1) : index + 2]
        return index == len(run.route) - 1 or any(hop.node == self._own for hop in beside)

    async def audit(self, run: ClientRun, places: Sequence[int]) -> AsyncGenerator[Audited, None]:
        """Audit the Stages at these places, one after the other; what came of each."""
        until = asyncio.get_running_loop().time() + AUDIT_S
        for index in places:
            yield await self._judged(run, index, until)

    async def _judged(self, run: ClientRun, index: int, until: float) -> Audited:
        case = AuditCase(self._means, run, index)
        if run.epoch:
            return case.unaudited("the route changed on the way")
        try:
            async with asyncio.timeout_at(until):
                found = await case.judge()
        except TimeoutError:
            found = case.unaudited(f"it was given up after {AUDIT_S:.0f} s")
        log.info("audit: %s", audit_text(found))
        return found

    # --- on the way -------------------------------------------------------------------

    def look(self, run: ClientRun | None) -> list[Audited]:
        """Audit what there is, if it is time to; what accuses a node and is not told yet."""
        if run is not None and not run.epoch and len(self._means.log.drawn) >= self._next:
            self._next = 2 * len(self._means.log.drawn)
            busy = self._under_way is not None and not self._under_way.done()
            places = [] if busy else self.due(run)
            if places:
                tasks = self._means.answers.desk.tasks
                self._under_way = tasks.spawn(self._meanwhile(run, places), "audit")
        return self.news()

    def news(self) -> list[Audited]:
        """What accuses a node and is not told yet."""
        told, self._news = self._news, []
        return told

    async def _meanwhile(self, run: ClientRun, places: Sequence[int]) -> None:
        until = asyncio.get_running_loop().time() + AUDIT_S
        for index in places:
            found = await self._judged(run, index, until)
            if found.accuses:
                self._news.append(found)
                self._accused.add(index)

    async def pause(self) -> None:
        """End what is under way: the answer is complete, or given up."""
        task, self._under_way = self._under_way, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=LET_GO_S)
