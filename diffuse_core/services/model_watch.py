"""When a Host on `auto` leaves its model for another: with patience, and not all at once.

Every Host that could go sees the same need. Each waits for a time of its own, opens the model, and
claims the gap beside what it still serves; what one claims is no gap for the others, and of two
claims the lower id's stands. Only then it leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from diffuse_core.domain.claims import settle
from diffuse_core.domain.coverage import COMMITTED, holders
from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.needs import Need, elsewhere, robust_without
from diffuse_core.domain.records import Holding, record_node
from diffuse_core.services import placement

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.needs import Means
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import WeightSource
    from diffuse_core.services.model_choice import ModelSearch
    from diffuse_core.services.node import Node

LOOK_S = 1.0
PATIENCE_S = 20.0
"""How long the same need must stand before anybody moves for it."""
SPREAD_S = 40.0
"""Beyond that, each Host waits for up to so long: the first one's claim ends the others' wait."""
SETTLE_TIMES = 2
"""A claim beside what is served stands for longer than others': nothing is lost by waiting."""
PUBLISH_LOOKS = 10


class ModelWatch:
    """Watches the other models for a Host that serves one."""

    def __init__(self, node: Node, means: Means, search: ModelSearch) -> None:
        self._node = node
        self._means = means
        self._search = search
        self._before: Holding | None = None

    async def needed_elsewhere(self, current: ModelRef) -> tuple[WeightSource, ModelRef]:
        """Wait until this Host is to leave `current`: the model to take instead, opened.

        The gap of it is claimed then: what this Host says of itself is no longer what it serves.
        """
        while True:
            need = await self._lasting(current)
            source = await self._search.open(need.model, lambda _fraction: None)
            if source is None:
                continue
            again = self._need(current)
            if again is not None and again.model == need.model and await self._claim(again):
                if robust_without(self._node.members(), self._means, current):
                    text = f"leaves {current.id} for {need.model.id}: {again.reason}"
                    self._node.note("info", text)
                    return source, need.model
                self._take_back()

    async def _lasting(self, current: ModelRef) -> Need:
        """The need that stood for as long as this Host waits for it."""
        since, seen = 0.0, None
        while True:
            await asyncio.sleep(LOOK_S)
            need, now = self._need(current), self._node.clock.monotonic()
            model = need.model if need is not None else None
            if model != seen:
                since, seen = now, model
            if need is not None and now - since >= PATIENCE_S + SPREAD_S * self._share(need.model):
                return need

    def _need(self, current: ModelRef) -> Need | None:
        held = self._node.holding
        if held is None or held.model != current or held.state != "ready":
            return None
        members = self._node.members()
        # What failed comes after all that was not tried, so it cannot keep others waiting.
        return elsewhere(members, self._means, current, self._search.failed) or elsewhere(
            members, self._means, current, self._search.passed
        )

    def _share(self, model: ModelRef) -> float:
        """This Host's part of the spread, 0..1: another for every Host and model."""
        digest = hashlib.sha256(self._means.own + model.fingerprint.encode()).digest()
        return int.from_bytes(digest[:4]) / 2**32

    async def _claim(self, need: Need) -> bool:
        """Claim the gap, and whether the claim stands once it has reached everybody."""
        plan = need.plan
        self._before = self._node.holding
        if plan is None or self._before is None:
            return False
        claim = Holding(need.model, plan.slice, "claiming")
        self._node.hold(claim)
        stands = await self._published(claim)
        if stands:
            self._node.pull()
            nodes = sum(member.live for member in self._node.members())
            settle_s = Pace(settle_s=placement.SETTLE_S).settle_time(nodes)
            await asyncio.sleep(SETTLE_TIMES * settle_s)
            stands = settle(self._means.own, plan.slice, self._told(need), counted=plan.counted)
        if self._node.holding != claim:
            # The placement had something to say meanwhile: it moves inside the model.
            return False
        if not stands:
            self._take_back()
        return stands

    async def _published(self, claim: Holding) -> bool:
        """Whether our claim went out: after many changes news of us have to wait."""
        for _ in range(PUBLISH_LOOKS):
            if any(
                member.record.node == self._means.own and member.record.holding == claim
                for member in self._node.members()
            ):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def _told(self, need: Need) -> list[tuple[NodeId, Slice, HoldState]]:
        """What the other Hosts of the model announce."""
        return [
            (record_node(one.record), one.record.holding.slice, one.record.holding.state)
            for one in holders(self._node.members(), need.model, COMMITTED)
            if one.record.holding is not None and one.record.node != self._means.own
        ]

    def _take_back(self) -> None:
        self._node.hold(self._before)
