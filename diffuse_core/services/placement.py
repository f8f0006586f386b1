"""Placement: drives the state machine that decides which Slice this Host holds and when it moves.

The rules are in the domain (`placing`); here is what they need: the clock, what the node knows,
and a Host that does what comes out.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.coverage import COMMITTED, holders
from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.placing import (
    Drain,
    Load,
    Placing,
    Publish,
    Resume,
    Stop,
    Tell,
    Unload,
    Withdraw,
)
from diffuse_core.domain.planner import HostSummary, Plan
from diffuse_core.domain.records import Holding, ModelRef, record_node
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from diffuse_core.domain.placing import Phase, Step
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

SETTLE_S = 1.2
"""How long a claim stands in the gossip of a small network before it counts: a few rounds."""
DRAIN_S = 30.0
"""How long Sessions may go on when their Host is to move."""
STOP_S = 6.0
"""How long they may when its process is to stop: who started it may not wait for long."""
CLOSING_S = 2.0
LOAD_S = 0.5
"""How often it is looked how busy this Host is."""


class Serving(Protocol):
    """What a Host does for its placement."""

    @property
    def sessions(self) -> int:
        """How many Sessions run here."""

    @property
    def stuck(self) -> bool:
        """Whether none of them gets on."""

    async def load(self, plan: Plan) -> None:
        """Load the slice of `plan` and serve it.

        Raises:
            DiffuseError, OSError, RuntimeError: it cannot be loaded.
        """

    def drain(self) -> None:
        """Admit no Session any more."""

    def resume(self) -> None:
        """Admit Sessions again."""

    async def unload(self) -> None:
        """End what Sessions are left, and give the memory back."""

    def report(self) -> None:
        """Tell the network how busy this Host is."""


class Placement:
    """Drives one Host. `wake` it when a Session ended."""

    def __init__(
        self,
        node: Node,
        model: ModelRef,
        capacity: int,
        max_layers: int | None,
        look_s: float,
    ) -> None:
        self._node = node
        self._model = model
        self._look_s = look_s
        pace = Pace(settle_s=SETTLE_S, look_s=look_s, drain_s=DRAIN_S, stop_s=STOP_S)
        self._placing = Placing(
            node.id,
            capacity,
            model.shape,
            max_layers=max_layers,
            target_replicas=node.target_replicas,
            model=model.id,
            pace=pace,
        )
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def phase(self) -> Phase:
        """Where the state machine is."""
        return self._placing.phase

    def plan(self) -> Plan:
        """What this Host would take now.

        Raises:
            UsageError: the capacity holds not even one layer; the message names what one needs.
        """
        return self._placing.plan(self._hosts())

    def wake(self) -> None:
        """Something changed that may be waited for."""
        self._wake.set()

    async def run(self, serving: Serving) -> None:
        """Find a Slice, have it loaded and served, move when that helps; until `leave`.

        Raises:
            UsageError: as `plan`.
            DiffuseError, OSError, RuntimeError: what loading the first slice raised, or the one
                to go back to after a move that failed.
        """
        report_at = -math.inf
        try:
            while True:
                self._wake.clear()
                now = self._node.clock.monotonic()
                # An answer may be waiting for the very layers that this Host is to take.
                if serving.sessions == 0 or (self.phase == "draining" and serving.stuck):
                    self._placing.drained()
                nodes = sum(member.live for member in self._node.members())
                self._placing.tick(now, self._hosts(), nodes)
                for step in self._placing.drain():
                    await self._do(step, serving)
                if self._placing.phase == "ended":
                    return
                if now >= report_at:
                    report_at = now + self._look_s
                    serving.report()
                await self._pause(min(report_at, self._placing.next_deadline()), serving)
        finally:
            self._ended.set()

    async def leave(self, serving: Serving, patience: float | None = None) -> None:
        """Stop: Sessions that run have `patience` seconds (None: STOP_S), then the rest is ended.

        Called again meanwhile, the later call's time counts, from then on.
        """
        seconds = STOP_S if patience is None else patience
        running = serving.sessions
        self._placing.leave(self._node.clock.monotonic(), running, seconds)
        self._wake.set()
        if running:
            what = "1 session" if running == 1 else f"{running} sessions"
            when = "ends with it" if running == 1 else "ends with the last"
            limit = f"{when}, in {seconds:.0f} s at most" if seconds >= 1.0 else "ends now"
            self._node.note("info", f"stops: {what} left, {limit}")
            try:
                async with asyncio.timeout(seconds + CLOSING_S):
                    await self._ended.wait()
            except TimeoutError:
                log.warning("sessions did not end in time")

    async def _pause(self, until: float, serving: Serving) -> None:
        """Wait, and tell meanwhile how busy this Host is: that is looked at more often."""
        wait = max(0.0, until - self._node.clock.monotonic())
        while True:
            try:
                async with asyncio.timeout(min(wait, LOAD_S)):
                    await self._wake.wait()
            except TimeoutError:
                wait = until - self._node.clock.monotonic()
                if wait <= 0:
                    return
                serving.report()
            else:
                return

    async def _do(self, step: Step, serving: Serving) -> None:
        match step:
            case Publish():
                self._node.hold(Holding(self._model, step.slice, step.state))
                if step.state == "claiming":
                    self._node.pull()
            case Withdraw():
                self._node.hold(None)
            case Load():
                await self._load(step.plan, serving)
            case Drain():
                serving.drain()
                self._wake.set()  # there may be no Session to wait for
            case Resume():
                serving.resume()
            case Unload():
                await serving.unload()
            case Tell():
                self._node.note("info", step.text)
            case Stop():
                pass

    async def _load(self, plan: Plan, serving: Serving) -> None:
        try:
            await serving.load(plan)
        except (DiffuseError, OSError, RuntimeError) as error:
            if not self._placing.load_failed(self._node.clock.monotonic()):
                self._node.hold(None)
                raise
            self._node.note("warning", f"{plan.slice} cannot be loaded ({error}); going back")
        else:
            self._placing.loaded(self._node.clock.monotonic())
        for step in self._placing.drain():
            await self._do(step, serving)

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
