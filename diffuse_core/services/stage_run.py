"""One Session on one Stage: opened, run along a Route, paused, led along another Route."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import TakeMirror
from diffuse_core.domain.codec import MAX_BODY_BYTES
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import (
    MAX_DRAFTS,
    Rerouted,
    SessionAlive,
    SessionOpened,
)
from diffuse_core.domain.session import PREFILL_ROWS, StageSession, whole_piece
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.domain.spots import NEARLY
from diffuse_core.errors import ChannelClosed, RefusalReason, Refused, Unreachable
from diffuse_core.services.lane import Lane
from diffuse_core.services.next_watch import NextWatch
from diffuse_core.services.stage_intake import Intake
from diffuse_core.services.stage_outlet import NeighbourLost, Outlet

if TYPE_CHECKING:
    from diffuse_core.domain.messages import Hop, OpenSession, Reroute, Resume
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.rms_band import Learned
    from diffuse_core.ports import Clock
    from diffuse_core.services.lane import Taker
    from diffuse_core.services.links import Link
    from diffuse_core.services.pass_clock import PassClock
    from diffuse_core.services.scheduler import Scheduler
    from diffuse_core.services.stage_dials import StageDials

log = logging.getLogger(__name__)


SILENT_S = 9.0
"""A Client that is not heard for so long gets no more: it asks every second whether we live.

Stages look once a second, so that ten seconds after it vanished nothing is held for it.
"""
GONE_S = 5.0
"""As long it may take to come back over another link."""
IDLE_WANTED_S = 90.0
"""The same where there is no room for others: longer than a Client waits for a lost Stage."""
STUCK_S = 5.0
"""One in which nothing was run for so long holds up no move: it may wait for the new layers."""
IDLE_S = 600.0
"""A Session in which nothing was run for so long is of no use, whoever asks whether it is held."""


class RunFailed(Exception):  # noqa: N818
    """The Session cannot go on along this Route: through whose fault, and why.

    `kept`: with another node in place of that one it can.
    """

    def __init__(
        self, node: bytes, reason: RefusalReason, detail: str, *, kept: bool = False
    ) -> None:
        super().__init__(detail)
        self.node = NodeId(node)
        self.reason: RefusalReason = reason
        self.kept = kept


class StageRun:
    """A Session being run: its state, its lane in the scheduler, and the links it uses."""

    def __init__(
        self,
        own: NodeId,
        model: ModelRef,
        message: OpenSession,
        client: Link,
        scheduler: Scheduler,
        clock: Clock,
        kv_bytes: int,
        rows_alone: int,
        times: PassClock | None,
        learned: Learned,
    ) -> None:
        width = model.shape.hidden * ITEM_BYTES[model.contract]
        piece = min(PREFILL_ROWS, whole_piece(MAX_BODY_BYTES // width))
        self._own = own
        self._scheduler = scheduler
        self._clock = clock
        self.state = state = StageSession(message, rows_alone, piece, client=client.remote)
        self.kv_bytes = kv_bytes
        self.lane = Lane(state.name, len(message.route))
        self.lane.prompt = state.prompt
        # Imported where it is needed: it brings numpy along.
        from diffuse_core.domain.sampling import Sampler

        sampler = Sampler(message.decoding, message.prompt, message.past, message.seen)
        self._times = times
        examiner = None
        if message.audit and state.is_last:
            from diffuse_core.domain.examiner import Examiner

            nearly = NEARLY[model.contract]
            examiner = Examiner(
                message.decoding, message.prompt, message.past, message.seen, nearly
            )
        self.intake = Intake(
            model,
            state,
            sampler,
            scheduler,
            self.lane,
            clock,
            times,
            learned,
            message.spots,
            examiner,
        )
        self.outlet = Outlet(model, state, self.intake, client, times)
        self.outlet.flowing = message.epoch == 0
        self.next_watch = NextWatch(state.name, self.outlet, clock)
        self.outlet.examiner = examiner
        self.drafts = min(MAX_DRAFTS, rows_alone - 1)
        """Guessed rows that can be run in one pass."""
        self.heard = clock.monotonic()
        """When the Client was heard last."""
        self.gone: float | None = None
        """Since when its link is no more."""
        self.lane.since = self.heard
        self.task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._refused: Refused | None = None
        self._reroute: Reroute | None = None
        self._opening = True
        self._deaf = False
        self._accused: set[bytes] = set()

    @property
    def client(self) -> Link:
        """The Client's link."""
        return self.outlet.client

    async def open(self) -> None:
        """Open the Session in the executor; `serve` tells what came of it."""
        try:
            await self._scheduler.open(self.lane, self.state.part, self.state.budget)
        except Refused as error:
            self._refused = error
        except Exception as error:
            log.exception("a session could not be opened on stage %s", self.state.part)
            self._refused = Refused(f"it could not be opened: {type(error).__name__}", "lost")
        finally:
            self._ready.set()

    async def _opened(self) -> None:
        await self._ready.wait()
        if self._refused is not None:
            raise self._refused

    async def serve(self, dials: StageDials) -> None:
        """Take the Session's place in its Route, then send on what its passes give.

        May be cancelled at any time and called again: nothing is lost.

        Raises:
            RunFailed: it cannot go on.
        """
        try:
            await self._opened()
            await self._begin(dials)
            while True:
                await self.outlet.flow()
                await self._take_outcome(self.outlet.at_once)
        except Refused as error:
            raise RunFailed(self._own, error.reason, str(error)) from error
        except NeighbourLost as error:
            raise RunFailed(self._onward, error.reason, str(error), kept=True) from error
        except RunFailed:
            raise
        except ChannelClosed:
            # The Client's: it may come back over another.
            raise RunFailed(self.client.remote, "lost", "its link ended", kept=True) from None
        except Exception as error:
            log.exception("a session failed on stage %s", self.state.part)
            text = f"the session failed: {type(error).__name__}"
            raise RunFailed(self._own, "lost", text) from error

    async def collect(self) -> None:
        """While the Session is paused: note what its passes give.

        Raises:
            RunFailed: it cannot go on.
        """
        try:
            while True:
                await self._take_outcome()
                await self.outlet.tell_client()
        except Refused as error:
            raise RunFailed(self._own, error.reason, str(error)) from error

    @property
    def _onward(self) -> bytes:
        """The next node of the ring."""
        return (self.state.ring if self.state.after is None else self.state.after).node

    @property
    def backward(self) -> NodeId:
        """The node before this one in the ring."""
        before = self.state.tail if self.state.before is None else self.state.before
        return NodeId(before.node)

    # --- its place in the Route ---------------------------------------------------------

    async def _begin(self, dials: StageDials) -> None:
        """Do what was asked last: open the Session, or follow another Route."""
        state = self.state
        if self._reroute is not None:
            held = await self._change_route(self._reroute)
            await self._reach(dials)
            self._reroute, self._opening = None, False
            await self.client.send(Rerouted(state.id, state.epoch, held))
        elif self._opening:
            await self._reach(dials)
            self._opening = False
            await self.client.send(SessionOpened(state.id, state.epoch, self.drafts))

    async def _change_route(self, message: Reroute) -> int:
        """Forget what had no pass; how many rows are held."""
        while self._scheduler.rest(self.lane):
            try:
                await self._take_outcome()
            except RunFailed as error:
                if not error.kept:
                    raise
        state = self.state
        # Who draws in the place of a lost last Stage runs no rows of tokens it has yet to draw.
        most = None if state.is_last else state.prompt + message.drawn
        held = self.intake.settle(most)
        self.outlet.settle(held)
        if state.is_last:
            state.draws.tell_again(message.drawn)
            await self.outlet.tell_client()
        if state.epoch < message.epoch:
            state.reroute(message)
            self.lane.stages = len(message.route)
        self._deaf = False
        self._accused.clear()
        return held

    async def _reach(self, dials: StageDials) -> None:
        if self._times is not None:
            self._times.follow(self.state.index, self.backward)
        target = self.state.ring if self.state.after is None else self.state.after
        self.outlet.next = None
        if self.state.is_first and self.state.is_last:
            return
        if self.state.audit:
            await self._take_mirror(dials)
            return
        try:
            self.outlet.next = await self._link_to(dials, target)
        except Unreachable as error:
            raise RunFailed(target.node, "lost", str(error), kept=True) from error

    async def _link_to(self, dials: StageDials, hop: Hop) -> Link:
        return await dials.to(NodeId(hop.node), hop.addresses, self.client.remote)

    async def _take_mirror(self, dials: StageDials) -> None:
        """Ask the Stage before for what it gave to the one that is audited."""
        before = self.state.before
        if before is None:
            return
        try:
            link = await self._link_to(dials, before)
            await link.send(TakeMirror(self.state.name))
        except (Unreachable, ChannelClosed) as error:
            raise RunFailed(before.node, "lost", str(error)) from error

    def reroute(self, message: Reroute, link: Link) -> None:
        """Be about to follow another Route; `serve` does it and answers."""
        self.outlet.pause()
        self._reroute = message
        self.outlet.client = link
        self.gone = None

    def resume(self, message: Resume) -> bool:
        """Send on what is there from a row on; whether `serve` is to be called again for it."""
        if message.epoch != self.state.epoch or self._reroute is not None:
            return False
        if self.state.is_first:
            self.intake.guesser.allow(min(message.drafts, self.drafts), self.intake.line.known)
        if self.outlet.flowing or self._accused or self._opening:
            return False
        self.outlet.resume(message.position)
        return True

    def accuse(self, node: bytes, *, deaf: bool) -> bool:
        """Pause because of a node; whether it is the first time on this Route.

        `deaf`: take no more rows before there is another Route.
        """
        self.outlet.pause()
        self._deaf |= deaf
        new = node not in self._accused
        self._accused.add(node)
        return new

    def listens(self, epoch: int) -> bool:
        """Whether rows of that epoch are to be taken."""
        return epoch == self.state.epoch and self._reroute is None and not self._deaf

    # --- what came of the rows ----------------------------------------------------------

    async def _take_outcome(self, taker: Taker | None = None) -> None:
        try:
            _, result = await self._scheduler.outcome(self.lane, taker)
        except Refused as error:
            before = self.state.before
            if error.reason != "invalid" or before is None:
                raise
            # What came in was wrong; what was made of it here is refused as "lost".
            self._scheduler.reopen(self.lane)
            self.outlet.settle(self.intake.settle())
            raise RunFailed(before.node, "invalid", str(error), kept=True) from error
        if result is not None:
            self.outlet.note(result)

    # --- who is there -------------------------------------------------------------------

    def hear(self) -> None:
        """The Client was heard."""
        self.heard = self._clock.monotonic()

    def overdue(self, now: float) -> str | None:
        """Why the Session is to be freed, if it is: nobody is there, or nothing is done."""
        if self.gone is not None and now - self.gone >= GONE_S:
            return "the client's link ended"
        if now - self.heard >= SILENT_S:
            return f"the client was not heard for {SILENT_S:.0f} s"
        if now - self.lane.since >= IDLE_S:
            return f"nothing was run for {IDLE_S:.0f} s"
        return None

    def is_idle(self, now: float) -> bool:
        """Whether it may be freed when others need the room."""
        return now - self.lane.since >= IDLE_WANTED_S

    def is_stuck(self, now: float) -> bool:
        """Whether nothing was run for a while, as when the Client waits for lost layers."""
        if self.lane.steps or self.lane.in_turn:
            return False
        return now - self.lane.since >= STUCK_S

    def alive(self) -> SessionAlive:
        """How far the Session has come here."""
        received, ran, sent = self.state.known
        sent = self.state.draws.gone_round if self.state.is_last else sent
        return SessionAlive(self.state.id, received, ran, sent)

    def is_client(self, link: Link) -> bool:
        """Whether the Client is at the other end; it may come over another link than before."""
        return link.remote == self.client.remote

    def needs(self, ended: Link, *, other: Link | None) -> bool:
        """Whether the Session cannot go on without a link that ended; `other` leads there too.

        Links to nodes that were beside this one on an earlier Route end late, and unmissed.
        """
        if ended is self.outlet.next:
            return True
        if ended.remote != self.backward:
            return False
        return other is None or ended is self.outlet.source

    def is_beside(self, link: Link) -> bool:
        """Whether the Stage before this one in the ring may be at the other end."""
        return link.remote == self.backward
