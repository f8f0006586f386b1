"""Which Route a generation takes, and next: what the directory knows, less whom it lost."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import holders
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.records import record_node
from diffuse_core.domain.router import Candidate, choose_route
from diffuse_core.domain.slices import gaps
from diffuse_core.errors import DiffuseError, ModelIncomplete, Refused, Unreachable
from diffuse_core.services.run import StageBlamed, StageDeclined

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.domain.records import ModelRef, Record
    from diffuse_core.services.directory import Directory

log = logging.getLogger(__name__)

REACH_S = 2.0
"""How long a node that was lost may take to answer us, to be no more than doubtful."""


class RouteChoice:
    """Chooses the Routes of one generation. `own` is this node, where it is one.

    A node that is lost need not be dead: perhaps only a Sentinel between it and another is. So
    the first time we try to reach it ourselves. If we do, it is doubtful: taken where no other
    will do. Else it is away, which `reconsider` may change. From the second time on it is out.
    """

    def __init__(
        self, directory: Directory, model: ModelRef, rng: random.Random, own: NodeId | None
    ) -> None:
        self.model = model
        self.own = own
        self._directory = directory
        self._rng = rng
        self._blamed: Counter[NodeId] = Counter()
        self._met_at: dict[NodeId, tuple[str, ...]] = {}
        self._doubtful: set[NodeId] = set()
        self._away: set[NodeId] = set()
        self._out: set[NodeId] = set()
        self._declined: set[NodeId] = set()
        self._problem: StageBlamed | StageDeclined | None = None

    @property
    def _avoided(self) -> set[NodeId]:
        return self._away | self._out | self._declined

    def choose(self) -> list[Hop]:
        """The cheapest Route, with where its nodes can be dialled now.

        Raises:
            ModelIncomplete: there is none.
        """
        candidates = []
        doubtful = self._doubtful | self._avoided
        for member in holders(self._directory.members(), self.model):
            record = member.record
            node = record_node(record)
            if member.liveness != "alive":
                doubtful.add(node)
            if record.holding is not None and self._has_a_way(node, record):
                candidates.append(
                    Candidate(
                        node=node,
                        slice=record.holding.slice,
                        rtt_s=0.0 if node == self.own else member.rtt_s,
                        step_s=record.load.step_ms / 1000,
                        sessions=record.load.sessions,
                        addresses=record.addresses,
                    )
                )
        addresses = {one.node: one.addresses for one in candidates}
        layers = self.model.shape.layers
        try:
            stages = choose_route(layers, candidates, doubtful, self._rng)
        except ModelIncomplete:
            # Without those that are doubted it cannot be done; most of them live.
            stages = choose_route(layers, candidates, self._avoided, self._rng)
        self._met_at.update((node, addresses[node]) for node, _ in stages)
        return [Hop(node, addresses[node], part) for node, part in stages]

    def _has_a_way(self, node: NodeId, record: Record) -> bool:
        """Whether it says where it is met, which a node behind a NAT knows only after a while."""
        linked = self._directory.links.find(node) is not None
        return bool(record.addresses) or linked or node == self.own

    def fit(self, route: list[Hop], rows: int, decoding: DecodingParams) -> DecodingParams:
        """Ask for no more tokens than the Route's hosts say they can ever hold KV for.

        `rows` come before the first of these tokens.
        """
        budgets = {m.record.node: m.record.load.kv_budget for m in self._directory.members()}
        rooms = [
            budgets[hop.node] // (len(hop.part) * self.model.shape.kv_bytes)
            for hop in route
            if budgets.get(hop.node) and self.model.shape.kv_bytes
        ]
        room = min(rooms, default=rows + decoding.max_tokens) - rows
        if not 0 < room < decoding.max_tokens:
            return decoding
        return msgspec.structs.replace(decoding, max_tokens=room)

    # --- whom not to take -------------------------------------------------------------

    def declined(self, problem: StageDeclined) -> None:
        """A Stage did not take the Session."""
        self._problem = problem
        self._declined.add(problem.node)

    async def lost(self, problem: StageBlamed) -> None:
        """A Stage was lost: find out whether it can still be reached, where that matters."""
        self._problem = problem
        node = problem.node
        self._blamed[node] += 1
        self._doubtful.add(node)
        self._met_at.setdefault(node, ())
        await self._directory.look_again()
        if self._blamed[node] > 1 or problem.how == "silent" or problem.reason == "invalid":
            self._out.add(node)
        elif problem.how == "said" or not await self._reach(node):
            self._away.add(node)
        if node in self._avoided and problem.how != "said" and node != self.own:
            self._directory.suspect(node)

    async def reconsider(self) -> None:
        """Look again: who came or moved, and who of those that were away is back."""
        self._declined.clear()
        await self._directory.look_again()
        away = sorted(self._away)
        reached = await asyncio.gather(*map(self._reach, away))
        self._away.difference_update(
            node for node, back in zip(away, reached, strict=True) if back
        )

    async def _reach(self, node: NodeId) -> bool:
        addresses = self._directory.addresses(node) or self._met_at[node]
        try:
            async with asyncio.timeout(REACH_S):
                await self._directory.links.to(node, addresses)
        except (Unreachable, TimeoutError) as error:
            log.debug("node %s is away: %s", short_text(node), error)
            return False
        return True

    # --- in words ---------------------------------------------------------------------

    def missing(self) -> str:
        """The layers that no host holds which answers, as in "4:8, 12:16"."""
        answering = [
            member.record.holding.slice
            for member in holders(self._directory.members(), self.model)
            if member.record.holding is not None and member.record.node not in self._avoided
        ]
        return ", ".join(map(str, gaps(self.model.shape.layers, answering)))

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
        names = ", ".join(sorted(map(short_text, self._avoided | set(self._blamed))))
        return ModelIncomplete(
            f"no host that answers holds layers {self.missing()} of {self.model.shape.layers} "
            f"(without {names}: {problem}). Try again in a moment, or add a host"
        )
