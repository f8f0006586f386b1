"""Placement: which Slice this Host takes, agreed with the others before anything is loaded."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.coverage import COMMITTED, holders
from diffuse_core.domain.planner import HostSummary, Plan, plan, settle, volunteer
from diffuse_core.domain.records import Holding, ModelRef, record_node

if TYPE_CHECKING:
    from diffuse_core.domain.slices import Slice
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

SETTLE_S = 1.2
"""How long a claim stands in gossip before it counts: a few gossip rounds."""
MAX_ROUNDS = 8


class Placement:
    """Plans and claims for one Host."""

    def __init__(self, node: Node, model: ModelRef, capacity: int, max_layers: int | None) -> None:
        self._node = node
        self._model = model
        self._capacity = capacity
        self._max_layers = max_layers

    def plan(self) -> Plan:
        """What this Host would take now.

        Raises:
            UsageError: the capacity holds not even one layer; the message names what one needs.
        """
        held = [other.slice for other in self._others()]
        return plan(
            self._capacity,
            self._model.shape,
            held,
            max_layers=self._max_layers,
            own=self._node.id,
            model=self._model.id,
        )

    async def claim(self) -> Plan:
        """Claim a Slice and wait until the claim stands against those of others.

        Raises:
            UsageError: as `plan`.
        """
        wish = self.plan()
        for _ in range(MAX_ROUNDS):
            self._node.hold(Holding(self._model, wish.slice, "claiming"))
            self._node.pull()
            await asyncio.sleep(SETTLE_S)
            others = [(other.node, other.slice, other.state) for other in self._others()]
            if settle(self._node.id, wish.slice, others, counted=wish.counted):
                return wish
            self._node.note("info", f"another host took {wish.slice} first; planning again")
            wish = self.plan()
        log.warning("claims did not settle in %d rounds; taking %s", MAX_ROUNDS, wish.slice)
        return wish

    def better(self) -> Slice | None:
        """The Slice to move to when a gap is open, this Host is surplus, and it is our turn."""
        return volunteer(
            self._node.id, self._hosts(), self._model.shape, max_layers=self._max_layers
        )

    def _others(self) -> list[HostSummary]:
        return [host for host in self._hosts() if host.node != self._node.id]

    def _hosts(self) -> list[HostSummary]:
        return [
            HostSummary(
                record_node(member.record),
                member.record.holding.slice,
                member.record.holding.state,
                member.record.capacity,
            )
            for member in holders(self._node.members(), self._model, COMMITTED)
            if member.record.holding is not None
        ]
