"""Audits: what a Stage computed is computed again by a replica; where they differ a third decides.

Stage i of a Route stands between two others. What it took came from the Stage before, which kept
it and gives it to the replicas; what it gave is known from the Stage after, which kept a few
numbers of each row at coordinates that stage i does not know. So there are four who may lie:

- A replica: the other one then agrees with stage i.
- Stage i: the two replicas agree, on what they took as well, and stage i itself says that it gave
  what the Stage after took.
- Stage i or the Stage after: the replicas agree, and stage i says that it gave what they give.
  Either it gave another thing, or the Stage after does not tell what it took. These cannot be
  told apart; both are doubtful, until one of them is again beside somebody else.
- Stage i or the Stage before: the replicas took one thing, stage i says that it took another.
  Cannot be told apart either.

Of a last Stage the tokens are known; where more than one was nearly as likely any will do. Two
nodes that lie together, in the same way, are believed. Nothing of all this leaves this machine.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import Mirror
from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import ForwardTokens, Hop, OpenSession
from diffuse_core.domain.spots import MAX_SPOTS, compare, drawn_so
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.audit_desk import AuditDesk, AuditFailed, AuditSession
from diffuse_core.services.session_terms import pieces
from diffuse_core.services.stage_audit import AUDIT_EPOCH

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.generation import Generation
    from diffuse_core.services.own_stages import OwnStages
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.services.route_choice import RouteChoice
    from diffuse_core.services.run import ClientRun

log = logging.getLogger(__name__)

AUDIT_S = 60.0
"""All audits of one generation take no longer."""
MOST_TRIES = 3
"""Replicas that are asked to audit, until one does."""


class SpotPlan:
    """Which Stages of a generation are audited, and where their rows are looked at."""

    def __init__(self, chance: float, hidden: int, rng: random.Random) -> None:
        """Each Stage with this `chance`; rows have `hidden` numbers."""
        self._chance = chance
        self._hidden = hidden if chance else 0
        self._rng = rng
        self._spots: dict[int, tuple[int, ...]] = {}

    def spots(self, layer: int) -> tuple[int, ...]:
        """The coordinates at the border before a layer; none before the first."""
        if not layer or not self._hidden:
            return ()
        if layer not in self._spots:
            count = min(MAX_SPOTS, self._hidden)
            self._spots[layer] = tuple(self._rng.sample(range(self._hidden), count))
        return self._spots[layer]

    @property
    def wanted(self) -> bool:
        """Whether any Stage may be audited."""
        return self._chance > 0

    def takes(self) -> bool:
        """Whether the next Stage is audited."""
        return self._rng.random() < self._chance


@dataclass(frozen=True)
class Examined:
    """What a replica found: rows that it took, rows that it gives; margins on a last Stage."""

    node: NodeId
    took: Sequence[float]
    gave: Sequence[float]


@dataclass
class _Given:
    """Tokens that the first Stage had, but for the last one, which has no row."""

    prompt: tuple[int, ...]
    drawn: list[int]


class Auditor:
    """Audits the Stages of one generation that has ended well, while its Session is still open."""

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
        self._own = None if own is None else own.node
        self._answers = answers
        self._choice = choice
        self._book = book
        self._plan = plan
        self._log = answer
        self._told: list[str] = []

    async def audit(self, generation: Generation) -> tuple[str, ...]:
        """Audit as many Stages as chance has it; what came of it, in words.

        What accuses a node is added to the events of the generation.
        """
        run = generation.run
        if run is None or not self._plan.wanted or not self._log.drawn:
            return ()
        if run.epoch:
            return ("not audited: the route changed on the way",)
        try:
            async with asyncio.timeout(AUDIT_S):
                for index in range(len(run.route)):
                    if self._plan.takes() and not self._is_private(run, index):
                        await self._audit(_Case(self, run, index), generation.events)
        except TimeoutError:
            self._told.append(f"audits were given up after {AUDIT_S:.0f} s")
        return tuple(self._told)

    def _is_private(self, run: ClientRun, index: int) -> bool:
        """Whether it runs here, or beside a Stage that does: nobody else can take its place.

        Nor is a last Stage audited then: the answer's tokens would go to one more node.
        """
        if self._own is None:
            return False
        beside = run.route[max(0, index - 1) : index + 2]
        return index == len(run.route) - 1 or any(hop.node == self._own for hop in beside)

    async def _audit(self, case: _Case, events: list[str]) -> None:
        name = f"stage {short_text(case.node)} (layers {case.hop.part})"
        try:
            told = await case.judge()
        except (AuditFailed, ChannelClosed, Unreachable) as error:
            self._told.append(f"{name} was not audited: {error}")
            return
        text = f"{name} {told}"
        log.info("audit: %s", text)
        self._told.append(text)
        if case.accuses:
            events.append(text)


class _Case:
    """The audit of one Stage."""

    def __init__(self, auditor: Auditor, run: ClientRun, index: int) -> None:
        self._run = run
        self._index = index
        self.hop = run.route[index]
        self.node = NodeId(self.hop.node)
        self.accuses = False
        self._last = index == len(run.route) - 1
        self._answers = auditor._answers
        self._book = auditor._book
        self._log = auditor._log
        self._model = auditor._choice.model
        self._before = auditor._plan.spots(self.hop.part.start)
        self._after = () if self._last else auditor._plan.spots(self.hop.part.end)
        self._rows = self._log.rows - 1
        self._replicas = iter(auditor._choice.replicas(self.hop.part, run.route))
        self._asked: set[NodeId] = set()

    # --- who is at fault ----------------------------------------------------------------

    async def judge(self) -> str:
        """What came of it, in words.

        Raises:
            AuditFailed: nothing came of it.
        """
        took, gave = await self._said()
        first = await self._examined()
        if first is None:
            raise AuditFailed("no other host of its layers could compute them again")
        if self._agrees(first, took, gave):
            return f"agrees with {short_text(first.node)}"
        self.accuses = True
        second = await self._examined()
        if second is None:
            self._book.suspect(self.node)
            return (
                f"did not agree with {short_text(first.node)}, and there is no third to decide: "
                "doubtful, avoided while others do"
            )
        if self._agrees(second, took, gave):
            self._book.bar(first.node)
            return (
                f"agrees with {short_text(second.node)}; quarantined {short_text(first.node)}: "
                "what it computed did not agree with two others"
            )
        return await self._against(first, second, took, gave)

    async def _against(
        self, first: Examined, second: Examined, took: Sequence[float], gave: Sequence[float]
    ) -> str:
        """Neither replica agrees with the Stage."""
        names = f"{short_text(first.node)} and {short_text(second.node)}"
        if not self._same(first.took, second.took, self._before):
            self._book.suspect(self.node)
            return f"agrees neither with {names} nor they with each other: doubtful"
        if not self._same(first.took, took, self._before):
            return self._either(self._run.route[self._index - 1], "took")
        if not self._last:
            if not self._same(first.gave, second.gave, self._after):
                self._book.suspect(self.node)
                return f"agrees neither with {names} nor they with each other: doubtful"
            if not self._same(await self._own_words(), gave, self._after):
                return self._either(self._run.route[self._index + 1], "gave")
        self._book.bar(self.node)
        return f"is quarantined: its layers {self.hop.part} did not agree with two others, {names}"

    def _either(self, other: Hop, did: str) -> str:
        guilty = self._book.doubt(self.node, NodeId(other.node))
        if guilty:
            names = " and ".join(sorted(map(short_text, guilty)))
            return f"or {short_text(other.node)} lies again; quarantined {names}"
        return (
            f"or {short_text(other.node)} lies of what it {did}: both are doubtful, "
            "avoided while others do"
        )

    def _agrees(self, found: Examined, took: Sequence[float], gave: Sequence[float]) -> bool:
        if not self._same(found.took, took, self._before):
            return False
        if self._last:
            margins = found.gave[1::2]
            return drawn_so(margins, self._model.contract) == "agrees"
        return self._same(found.gave, gave, self._after)

    def _same(self, one: Sequence[float], other: Sequence[float], spots: tuple[int, ...]) -> bool:
        if not spots:
            return True
        return compare(one, other, len(spots), self._model.contract) == "agrees"

    # --- what Stages say ----------------------------------------------------------------

    async def _said(self) -> tuple[Sequence[float], Sequence[float]]:
        """What the Stage says that it took, and the next one of what it gave."""
        took: Sequence[float] = ()
        gave: Sequence[float] = ()
        if self._before:
            took = await self._tell(self._index, self._before)
        if self._after:
            gave = await self._tell(self._index + 1, self._after)
        return took, gave

    async def _tell(self, index: int, spots: tuple[int, ...]) -> Sequence[float]:
        link = self._run.stages[index]
        return await self._answers.spots(link, self._run.session, self._rows, len(spots))

    async def _own_words(self) -> Sequence[float]:
        """What the Stage says that it gave."""
        link, session, spots = self._run.stages[self._index], self._run.session, self._after
        try:
            return await self._answers.spots(
                link, session, self._rows, len(spots), spots, given=True
            )
        except AuditFailed:
            return ()

    # --- a replica ----------------------------------------------------------------------

    async def _examined(self) -> Examined | None:
        """What the next replica finds that can be asked; None when there is none."""
        for _ in range(MOST_TRIES):
            replica = next(self._replicas, None)
            if replica is None:
                return None
            try:
                return await self._examine(replica)
            except (AuditFailed, ChannelClosed, Unreachable) as error:
                log.info("node %s does not audit: %s", short_text(replica.node), error)
        return None

    async def _examine(self, replica: Hop) -> Examined:
        link = await self._answers.desk.links.to(NodeId(replica.node), replica.addresses)
        session = AuditSession(self._answers.desk, link)
        try:
            if self._index:
                await self._mirror(session.session, replica)
            route = list(self._run.route)
            route[self._index] = replica
            await session.open(self._opening(session.session, tuple(route)))
            if not self._index:
                await session.feed(list(self._pieces(session.session, tuple(route))))
            await session.until_ran(self._rows)
            return await self._found(session, replica)
        finally:
            await session.close()

    async def _mirror(self, audit: bytes, replica: Hop) -> None:
        message = Mirror(self._run.session, audit, replica.node, self._rows)
        link = self._run.stages[self._index - 1]
        if await self._answers.ready(link, audit, message) < self._rows:
            raise AuditFailed("the stage before does not hold what it gave")

    async def _found(self, session: AuditSession, replica: Hop) -> Examined:
        ask, link, name = self._answers.spots, session.link, session.session
        took: Sequence[float] = ()
        if self._before:
            took = await ask(link, name, self._rows, len(self._before))
        if self._last:
            gave = await ask(link, name, len(self._log.drawn), 2, given=True)
        else:
            gave = await ask(link, name, self._rows, len(self._after), self._after, given=True)
        return Examined(NodeId(replica.node), took, gave)

    def _opening(self, session: bytes, route: tuple[Hop, ...]) -> OpenSession:
        answer, last = self._log, self._last
        sampling = answer.decoding.sampling
        return OpenSession(
            session,
            self._model.id,
            self._model.fingerprint,
            route,
            self._index,
            answer.rows,
            len(answer.prompt),
            answer.decoding if last else DecodingParams(answer.decoding.max_tokens),
            1,
            epoch=AUDIT_EPOCH,
            drawn=len(answer.drawn) - 1,
            past=tuple(answer.drawn) if last else (),
            seen=tuple(sorted(set(answer.prompt))) if last and sampling.needs_seen else (),
            spots=self._before,
            audit=True,
        )

    def _pieces(self, session: bytes, route: tuple[Hop, ...]) -> Iterator[ForwardTokens]:
        given = _Given(self._log.prompt, self._log.drawn[:-1])
        return iter(pieces(given, _Course(session, AUDIT_EPOCH, route), 0))


@dataclass
class _Course:
    """Implements session_terms.Course."""

    session: bytes
    epoch: int
    route: tuple[Hop, ...]
