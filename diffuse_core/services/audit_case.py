"""The audit of one Stage: replicas compute it again, and where they differ a third decides.

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

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import Mirror
from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.identity import NodeId, node_text, short_text
from diffuse_core.domain.messages import ForwardTokens, Hop, OpenSession
from diffuse_core.domain.spots import (
    GAP,
    TOLERANCE,
    apart,
    compare,
    drawn_so,
    out_of_reach,
)
from diffuse_core.domain.view import Audited, Comparison
from diffuse_core.errors import DiffuseError
from diffuse_core.services.audit_desk import AuditDesk, AuditFailed, AuditSession
from diffuse_core.services.session_terms import pieces
from diffuse_core.services.stage_audit import AUDIT_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diffuse_core.domain.view import AuditVerdict
    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.services.route_choice import RouteChoice
    from diffuse_core.services.run import ClientRun
    from diffuse_core.services.spot_plan import SpotPlan

log = logging.getLogger(__name__)

MOST_TRIES = 3
"""Replicas that are asked to audit, until one does."""
MOST_REASON = 200
"""Characters of what a Stage says that are told."""


@dataclass(frozen=True)
class Means:
    """What all audits of one generation work with."""

    answers: AuditDesk
    choice: RouteChoice
    book: QuarantineBook
    plan: SpotPlan
    log: AnswerLog


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
    drawn: tuple[int, ...]


@dataclass
class _Course:
    """Implements session_terms.Course."""

    session: bytes
    epoch: int
    route: tuple[Hop, ...]


@dataclass
class _Record:
    """What is told in the end."""

    auditors: list[Comparison] = field(default_factory=list)
    quarantined: set[NodeId] = field(default_factory=set)
    doubtful: set[NodeId] = field(default_factory=set)


class AuditCase:
    """The audit of one Stage: of the rows there are now, on the Route of now."""

    def __init__(self, means: Means, run: ClientRun, index: int) -> None:
        self._means = means
        self._run = run
        self._index = index
        self._route = run.route
        self._links = dict(run.stages)
        self.hop = run.route[index]
        self.node = NodeId(self.hop.node)
        self._last = index == len(run.route) - 1
        self._contract = means.choice.model.contract
        self._before = means.plan.spots(self.hop.part.start)
        self._after = () if self._last else means.plan.spots(self.hop.part.end)
        self._drawn = tuple(means.log.drawn)
        self._rows = len(means.log.prompt) + len(self._drawn) - 1
        self._replicas = iter(means.choice.replicas(self.hop.part, run.route))
        self._record = _Record()

    # --- who is at fault ----------------------------------------------------------------

    async def judge(self) -> Audited:
        """What came of it; whoever is at fault is in quarantine then. Never raises."""
        try:
            return await self._judge()
        except (AuditFailed, DiffuseError) as error:
            return self.unaudited(str(error))

    def unaudited(self, reason: str) -> Audited:
        """Nothing came of it: why."""
        return self._told("unaudited", reason)

    async def _judge(self) -> Audited:
        took, gave = await self._said()
        first = await self._examined()
        if first is None:
            raise AuditFailed("no other host of its layers could compute them again")
        if self._agrees(first, took, gave):
            return self._told("agrees")
        second = await self._examined()
        if second is None:
            self._suspect(self.node)
            return self._told("differs", "there is no third to decide")
        if self._agrees(second, took, gave):
            self._bar(first.node)
            reason = f"{short_text(first.node)} agrees with neither"
            return self._told("agrees", reason, decided_by=second.node)
        return await self._against(first, second, took, gave)

    async def _against(
        self, first: Examined, second: Examined, took: Sequence[float], gave: Sequence[float]
    ) -> Audited:
        """Neither replica agrees with the Stage."""
        scattered = "nor did they with each other"
        if not self._same(first.took, second.took, self._before):
            self._suspect(self.node)
            return self._told("differs", scattered)
        if not self._same(first.took, took, self._before):
            return self._either(self._route[self._index - 1], "took")
        if not self._last:
            if not self._same(first.gave, second.gave, self._after):
                self._suspect(self.node)
                return self._told("differs", scattered)
            if not self._same(await self._own_words(), gave, self._after):
                return self._either(self._route[self._index + 1], "gave")
        self._bar(self.node)
        return self._told("differs", decided_by=second.node)

    def _either(self, other: Hop, did: str) -> Audited:
        """The Stage lies, or the one beside it does, of what it took or gave."""
        node = NodeId(other.node)
        self._record.quarantined |= self._means.book.doubt(self.node, node)
        if not self._record.quarantined:
            self._record.doubtful |= {self.node, node}
        return self._told("differs", f"it lies, or {short_text(node)} does of what it {did}")

    def _bar(self, node: NodeId) -> None:
        self._means.book.bar(node)
        self._record.quarantined.add(node)

    def _suspect(self, node: NodeId) -> None:
        self._means.book.suspect(node)
        self._record.doubtful.add(node)

    def _told(
        self, verdict: AuditVerdict, reason: str = "", decided_by: NodeId | None = None
    ) -> Audited:
        record, contract = self._record, self._contract
        return Audited(
            node=node_text(self.node),
            slice=self.hop.part,
            verdict=verdict,
            reason=reason[:MOST_REASON],
            rows=self._rows if record.auditors else 0,
            auditors=tuple(record.auditors),
            tolerance=TOLERANCE[contract],
            nats_tolerance=GAP[contract],
            decided_by=None if decided_by is None else node_text(decided_by),
            quarantined=_texts(record.quarantined),
            doubtful=_texts(record.doubtful),
        )

    def _agrees(self, found: Examined, took: Sequence[float], gave: Sequence[float]) -> bool:
        """Whether a replica agrees with the Stage; how far they are apart is noted."""
        pairs = [(found.took, took, self._before), (found.gave, gave, self._after)]
        agrees = all(self._same(*pair) for pair in pairs)
        away = [apart(one, other, len(spots)) for one, other, spots in pairs if spots]
        known = [one for one in away if one is not None]
        nats = None
        if self._last:
            margins = found.gave[1::2]
            nats = out_of_reach(margins)
            agrees = agrees and drawn_so(margins, self._contract) == "agrees"
        self._record.auditors.append(
            Comparison(
                auditor=node_text(found.node),
                agrees=agrees,
                difference=max(known) if known and len(known) == len(away) else None,
                nats=nats,
            )
        )
        return agrees

    def _same(self, one: Sequence[float], other: Sequence[float], spots: tuple[int, ...]) -> bool:
        if not spots:
            return True
        return compare(one, other, len(spots), self._contract) == "agrees"

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
        link = self._links[index]
        return await self._means.answers.spots(link, self._run.session, self._rows, len(spots))

    async def _own_words(self) -> Sequence[float]:
        """What the Stage says that it gave."""
        link, session, spots = self._links[self._index], self._run.session, self._after
        try:
            return await self._means.answers.spots(
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
            except (AuditFailed, DiffuseError) as error:
                log.info("node %s does not audit: %s", short_text(replica.node), error)
        return None

    async def _examine(self, replica: Hop) -> Examined:
        link = await self._means.answers.desk.links.to(NodeId(replica.node), replica.addresses)
        session = AuditSession(self._means.answers.desk, link)
        try:
            if self._index:
                await self._mirror(session.session, replica)
            route = list(self._route)
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
        link = self._links[self._index - 1]
        if await self._means.answers.ready(link, audit, message) < self._rows:
            raise AuditFailed("the stage before does not hold what it gave")

    async def _found(self, session: AuditSession, replica: Hop) -> Examined:
        ask, link, name = self._means.answers.spots, session.link, session.session
        took: Sequence[float] = ()
        if self._before:
            took = await ask(link, name, self._rows, len(self._before))
        if self._last:
            gave = await ask(link, name, len(self._drawn), 2, given=True)
        else:
            gave = await ask(link, name, self._rows, len(self._after), self._after, given=True)
        return Examined(NodeId(replica.node), took, gave)

    def _opening(self, session: bytes, route: tuple[Hop, ...]) -> OpenSession:
        answer, last = self._means.log, self._last
        model = self._means.choice.model
        sampling = answer.decoding.sampling
        return OpenSession(
            session,
            model.id,
            model.fingerprint,
            route,
            self._index,
            self._rows + 1,
            len(answer.prompt),
            answer.decoding if last else DecodingParams(answer.decoding.max_tokens),
            1,
            epoch=AUDIT_EPOCH,
            drawn=len(self._drawn) - 1,
            past=self._drawn if last else (),
            seen=tuple(sorted(set(answer.prompt))) if last and sampling.needs_seen else (),
            spots=self._before,
            audit=True,
        )

    def _pieces(self, session: bytes, route: tuple[Hop, ...]) -> Iterator[ForwardTokens]:
        given = _Given(self._means.log.prompt, self._drawn[:-1])
        return iter(pieces(given, _Course(session, AUDIT_EPOCH, route), 0))


def _texts(nodes: Iterable[NodeId]) -> tuple[str, ...]:
    return tuple(sorted(map(node_text, nodes)))
