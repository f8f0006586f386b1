"""Which Route a generation takes, and next: what the directory knows, less whom it lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import holders
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.own_sessions import OwnSessions
from diffuse_core.domain.records import record_node
from diffuse_core.domain.router import Candidate, candidate_of, choose_route, refill_route
from diffuse_core.domain.selection import no_way_text
from diffuse_core.domain.session_memory import PLAIN, Wishes, most_rows
from diffuse_core.domain.slices import gaps
from diffuse_core.errors import DiffuseError, ModelIncomplete, Refused, Unreachable
from diffuse_core.services.blame import Blame
from diffuse_core.services.links import DIAL_ALL_S
from diffuse_core.services.losses import Problem, StageBlamed, StageDeclined
from diffuse_core.services.session_terms import wishes

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import ModelRef, Record
    from diffuse_core.domain.slices import Slice
    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.directory import Directory
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.services.session_terms import Asked

log = logging.getLogger(__name__)

UNBOUNDED = 2**63
"""Rows that a node has room for which does not say."""
LOOK_S = 1.0
"""How long we look for news of the network before we make do with what we know."""
REACH_S = 1.5
"""How long a node that was lost may take to answer us, to be no more than doubtful."""


class NoRoom(ModelIncomplete):
    """No Route has room for what an answer that was begun still needs."""


class RouteChoice:
    """Chooses the Routes of one generation. `own` is this node, where it is one.

    A node that is lost need not be dead: perhaps only a Sentinel between it and another is, or
    another tells lies of it. So we try to reach it ourselves. If we do, it is doubtful: taken
    where no other will do. Else it is away, which `reconsider` may change. `Blame` says from
    when on it is out.
    """

    def __init__(
        self,
        directory: Directory,
        model: ModelRef,
        rng: random.Random,
        own: NodeId | None,
        sessions: OwnSessions | None = None,
        fixed: Sequence[Hop] = (),
        quarantine: QuarantineBook | None = None,
    ) -> None:
        """`sessions` are all that this client has placed, to which the chosen Route is added.

        `fixed` Stages, which the Client runs itself, are part of every Route. Nodes that are in
        `quarantine` are part of none.
        """
        self._quarantine = quarantine
        self._barred = set() if quarantine is None else quarantine.barred()
        self.model = model
        self.own = NodeId(fixed[0].node) if fixed else own
        self._fixed = tuple(fixed)
        self._sessions = sessions or OwnSessions()
        self._directory = directory
        self._rng = rng
        self._blame = Blame()
        self._met_at: dict[NodeId, tuple[str, ...]] = {}
        self._slow: set[NodeId] = set()
        self._problem: Problem | None = None

    def choose(self, need: int, *, all_of_it: bool = False, kept: Sequence[Hop] = ()) -> list[Hop]:
        """The cheapest Route, with where its nodes can be dialled now.

        Args:
            need: rows that there is to be room for. Hosts that say they can never hold so many
                are taken where no other will do.
            all_of_it: there must be room.
            kept: Stages that stay as they are, in order; others are found for what they leave.

        Raises:
            ModelIncomplete: there is none.
            NoRoom: there is one, but it has no room for `need` rows.
        """
        kept = self._with_fixed(kept)
        members = holders(self._directory.members(), self.model)
        candidates = [self._candidate(member) for member in members if self._may_serve(member)]
        suspects = {record_node(one.record) for one in members if one.liveness != "alive"}
        if self._quarantine is not None:
            suspects |= self._quarantine.doubtful()
        # Most that are doubted live: they are taken where it cannot be done without them.
        budgets = self._budgets()
        tiers = list(self._blame.to_avoid(suspects))
        small = {one.node for one in candidates if self._room(budgets, one.node, one.slice) < need}
        choices = [tier | without for tier in tiers for without in (small, set[NodeId]())]
        if all_of_it:
            choices = [tier | small for tier in tiers] + tiers
        stages = self._first_route(candidates, choices, kept)
        staying = {hop.node for hop in kept}
        fresh = [(node, part) for node, part in stages if node not in staying]
        if all_of_it and any(self._room(budgets, node, part) < need for node, part in fresh):
            raise NoRoom(
                f"no host that is left has room for all {need} tokens of prompt and answer"
            )
        addresses: dict[bytes, tuple[str, ...]] = {hop.node: hop.addresses for hop in kept}
        addresses.update((one.node, one.addresses) for one in candidates)
        self._met_at.update((node, addresses[node]) for node, _ in stages)
        now = self._directory.clock.monotonic()
        self._sessions.hold(self, (node for node, _ in stages), now)
        ways = self._directory.links.ways
        return [Hop(node, ways.ordered(node, addresses[node]), part) for node, part in stages]

    def _with_fixed(self, kept: Sequence[Hop]) -> list[Hop]:
        others = [hop for hop in kept if hop.node != self.own or not self._fixed]
        return sorted((*others, *self._fixed), key=lambda hop: hop.part)

    def _first_route(
        self, candidates: list[Candidate], choices: list[set[NodeId]], kept: Sequence[Hop]
    ) -> Sequence[tuple[NodeId, Slice]]:
        """The Route that avoids the first of these sets for which there is one."""
        for avoid in choices[:-1]:
            with contextlib.suppress(ModelIncomplete):
                return self._route(candidates, avoid, kept)
        try:
            return self._route(candidates, choices[-1], kept)
        except ModelIncomplete:
            self.require_a_way()
            raise

    def _route(
        self, candidates: list[Candidate], avoid: set[NodeId], kept: Sequence[Hop]
    ) -> Sequence[tuple[NodeId, Slice]]:
        layers = self.model.shape.layers
        if kept:
            staying = [(NodeId(hop.node), hop.part) for hop in kept]
            return refill_route(layers, candidates, avoid, self._rng, staying, asker=self.own)
        return choose_route(layers, candidates, avoid, self._rng, asker=self.own)

    def require_a_way(self) -> None:
        """Nothing, unless live nodes hold layers that nobody else does, and cannot be met.

        Raises:
            ModelIncomplete: naming those nodes.
        """
        missing = self._unanswered()
        cut_off: set[str] = set()
        barred: set[str] = set()
        for member in holders(self._directory.members(), self.model):
            node, holding = record_node(member.record), member.record.holding
            if self._may_serve(member) or holding is None:
                continue
            if any(holding.slice.overlaps(gap) for gap in missing):
                (barred if node in self._barred else cut_off).add(short_text(node))
        if cut_off:
            raise ModelIncomplete(no_way_text(missing, sorted(cut_off)))
        if barred:
            layers = ", ".join(map(str, missing))
            raise ModelIncomplete(
                f"layers {layers} of {self.model.shape.layers} are held by no host but "
                f"{', '.join(sorted(barred))}, in quarantine here because of audits; add a host, "
                "or see `diffuse quarantine list` and `diffuse quarantine clear`"
            )

    def _candidate(self, member: Member) -> Candidate:
        record, now = member.record, self._directory.clock.monotonic()
        sessions = self._sessions.estimate(record_node(record), record, now)
        own = self._sessions.count(record_node(record))
        return candidate_of(member, sessions, self.own, own=own)

    def release(self) -> None:
        """The generation ended: its Route is no load any more."""
        self._sessions.drop(self)

    def _may_serve(self, member: Member) -> bool:
        record = member.record
        node = record_node(record)
        if record.holding is None or node in self._barred:
            return False
        return self._has_a_way(node, record)

    def replicas(self, part: Slice, route: Sequence[Hop]) -> list[Hop]:
        """Others that hold a part of the model, in any order, to compute it again."""
        if self._quarantine is not None:
            self._barred = self._quarantine.barred()
        taken = {hop.node for hop in route} | self._blame.avoided | {self.own}
        found = [
            Hop(record_node(one.record), one.record.addresses, part)
            for one in holders(self._directory.members(), self.model)
            if one.liveness == "alive"
            and one.record.node not in taken
            and self._may_serve(one)
            and one.record.holding is not None
            and one.record.holding.slice.contains(part)
        ]
        self._rng.shuffle(found)
        return found

    def _has_a_way(self, node: NodeId, record: Record) -> bool:
        """Whether it says where it is met, which a node behind a NAT knows only after a while."""
        linked = self._directory.links.find(node) is not None
        return bool(record.addresses) or linked or node == self.own

    def fit(self, route: list[Hop], asked: Asked, log: AnswerLog) -> DecodingParams:
        """Ask for no more tokens than the Route's hosts say they can ever have room for."""
        budgets = self._budgets()
        rooms = [
            self._room(budgets, hop.node, hop.part, wishes(asked, log, route, index))
            for index, hop in enumerate(route)
        ]
        room = min(rooms) - len(log.prompt)
        if not 0 < room < log.decoding.max_tokens:
            return log.decoding
        return msgspec.structs.replace(log.decoding, max_tokens=room)

    def _budgets(self) -> dict[bytes, int]:
        return {m.record.node: m.record.load.kv_budget for m in self._directory.members()}

    def _room(
        self, budgets: dict[bytes, int], node: bytes, part: Slice, wishes: Wishes = PLAIN
    ) -> int:
        """Rows of the longest Session that a node says it ever has room for in these layers."""
        budget = budgets.get(node)
        if not budget:
            return UNBOUNDED
        return most_rows(self.model.shape, self.model.contract, part, budget, wishes)

    # --- whom not to take -------------------------------------------------------------

    def declined(self, problem: StageDeclined) -> None:
        """A Stage did not take the Session."""
        self._problem = problem
        self._blame.declined.add(problem.node)

    def is_barred(self, node: bytes) -> bool:
        """Whether a node may not even keep the Stage that it runs."""
        blame = self._blame
        return node in blame.away | blame.out | blame.condemned

    async def lost(self, problem: StageBlamed) -> NodeId | None:
        """A Stage was lost: find out whether it can still be reached, where that matters.

        Returns:
            The node that is to lose its place; None where only a way was lost.
        """
        self._problem = problem
        node, blame = problem.node, self._blame
        self._met_at.setdefault(node, ())
        await self._look_again()
        if problem.accuser is not None:
            blame.accused(problem, reached=await self._reach(node))
        else:
            blame.saw(problem)
            if node not in blame.out and not await self._is_there(problem):
                blame.away.add(node)
        blameless = problem.how == "said" or node in self._slow or node == self.own
        if node in blame.avoided and not blameless:
            self._directory.suspect(node)
        return blame.to_replace(problem)

    async def _is_there(self, problem: StageBlamed) -> bool:
        """Whether who did not say so itself can be reached after all."""
        node = problem.node
        if problem.how != "unanswered":
            return problem.how != "said" and await self._reach(node)
        if not set(self._directory.addresses(node)) - set(self._met_at[node]):
            # It had time enough to answer a dial there. That goes on, should there be no other.
            self._slow.add(node)
            return False
        return await self._reach(node)

    async def slow_ones_came(self) -> bool:
        """Wait for the dials that were given up so that others be tried; whether one succeeds.

        Whom it leads to may be taken again. Each is waited for once.
        """
        slow, self._slow = sorted(self._slow & self._blame.away), set()
        reached = await asyncio.gather(*(self._reach(node, DIAL_ALL_S) for node in slow))
        for node, back in zip(slow, reached, strict=True):
            if back:
                self._blame.pardon(node)
            else:
                self._directory.suspect(node)
        return any(reached)

    async def _look_again(self) -> None:
        """Learn what is new, soon: whoever is asked may be the very one that fell silent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._directory.look_again()

    async def reconsider(self) -> None:
        """Look again: who came or moved, and who of those that were lost is back."""
        self._blame.declined.clear()
        await self._look_again()
        lost = sorted(self._blame.pardonable)
        reached = await asyncio.gather(*map(self._reach, lost))
        for node, back in zip(lost, reached, strict=True):
            if back:
                self._blame.pardon(node)

    async def _reach(self, node: NodeId, seconds: float | None = None) -> bool:
        addresses = self._directory.addresses(node) or self._met_at[node]
        try:
            async with asyncio.timeout(REACH_S if seconds is None else seconds):
                await self._directory.links.to(node, addresses)
        except (Unreachable, TimeoutError) as error:
            log.debug("node %s is away: %s", short_text(node), error)
            return False
        return True

    # --- in words ---------------------------------------------------------------------

    def missing(self) -> str:
        """The layers that no host holds which answers, as in "4:8, 12:16"."""
        return ", ".join(map(str, self._unanswered()))

    def _unanswered(self) -> tuple[Slice, ...]:
        barred = self._blame.avoided | self._blame.condemned
        answering = [
            member.record.holding.slice
            for member in holders(self._directory.members(), self.model)
            if member.record.holding is not None
            and member.record.node not in barred
            and self._may_serve(member)
        ]
        here = (hop.part for hop in self._fixed)
        return gaps(self.model.shape.layers, (*answering, *here))

    def explained(self, error: ModelIncomplete) -> DiffuseError:
        """No Route is left: say so in the words of what went wrong before, if anything did."""
        problem = self._problem
        if isinstance(problem, StageDeclined):
            return Refused(
                f"no replica took the session; {problem}. Ask for fewer tokens, try again "
                "later, or add a host",
                problem.reason,
            )
        if problem is None:
            return error
        names = ", ".join(sorted(map(short_text, self._blame.named)))
        return ModelIncomplete(
            f"no host that answers holds layers {self.missing()} of {self.model.shape.layers} "
            f"(without {names}: {problem}). Try again in a moment, or add a host"
        )
