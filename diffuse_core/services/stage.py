"""The Stage: admits Sessions to a held Slice, hands each what arrives for it, and ends them.

Each Session has a task that sends on what its passes gave, so that a slow next Stage stops only
the Sessions that go through it. What runs when is the scheduler's business.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from diffuse_core.domain.admission import StageTerms, admit, check_route
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    CloseSession,
    OpenSession,
    Reroute,
    Resume,
    SessionAlive,
    SessionFailed,
    SessionRefused,
    WatchSession,
)
from diffuse_core.domain.rms_band import Learned
from diffuse_core.domain.session import common_name
from diffuse_core.errors import RefusalReason, Refused
from diffuse_core.services.meter import Meter
from diffuse_core.services.pass_clock import PassClock
from diffuse_core.services.scheduler import Scheduler
from diffuse_core.services.stage_audit import StageAudits
from diffuse_core.services.stage_dials import StageDials
from diffuse_core.services.stage_pace import OPENING, TOKENS, Pace
from diffuse_core.services.stage_rows import StageRows
from diffuse_core.services.stage_run import RunFailed, StageRun
from diffuse_core.services.stage_tidings import Tidings
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.records import ModelRef
    from diffuse_core.model_ports import Executor
    from diffuse_core.ports import Clock
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.links import Link, Links
    from diffuse_core.services.tally import StageTally

SWEEP_S = 1.0


def _nothing() -> None:
    """Nobody waits for the last Session to end."""


def _unknown(_node: NodeId) -> float:
    return 0.0


class StageService:
    """Serves one loaded Slice. `model` must be the reference that is in this node's record."""

    def __init__(
        self,
        own: NodeId,
        links: Links,
        clock: Clock,
        compute: ComputeThread,
        executor: Executor,
        model: ModelRef,
        kv_budget: int,
        tally: StageTally | None = None,
    ) -> None:
        self._own = own
        self._links = links
        self._clock = clock
        self._executor = executor
        self._model = model
        self.kv_budget = kv_budget
        self.kv_used = 0
        self.meter = Meter(clock, tally)
        self._scheduler = Scheduler(executor, compute, clock, self.meter)
        self._runs: dict[bytes, StageRun] = {}
        """By their names between Stages (see domain.session.common_name)."""
        self._opening: dict[NodeId, asyncio.Task[None]] = {}
        self._learned: defaultdict[int, Learned] = defaultdict(Learned)
        """What came in, by the layer that it came for."""
        self._tasks = TaskOwner("stage")
        self._dials = StageDials(links)
        self._leaving = False
        self.on_empty: Callable[[], object] = _nothing
        """Called when the last Session is gone."""
        self.round_trip: Callable[[NodeId], float] = _unknown
        """Seconds to a node and back, 0.0 where unknown; for Sessions that are timed."""
        links.handle(OpenSession, self._on_open)
        links.handle(Reroute, self._on_reroute)
        links.handle(Resume, self._on_resume)
        links.handle(CloseSession, self._on_close)
        links.handle(WatchSession, self._on_watch)
        links.on_ended(self._on_link_ended)
        self._pace = Pace(clock)
        self._tidings = Tidings(self._tasks)
        self._audits = StageAudits(links, self._tasks, self._pace, self._runs.get)
        self._rows = StageRows(
            own, links, self._pace, self._runs, self._audits, pause=self._pause, fail=self._fail
        )
        self._tasks.spawn(self._sweep(), "sweep")

    @property
    def sessions(self) -> int:
        """How many Sessions are held now."""
        return len(self._runs)

    @property
    def waiting(self) -> int:
        """How many of them have a step that waits for its pass."""
        return self._scheduler.waiting

    def neighbours(self) -> set[NodeId]:
        """The nodes before and behind this one in the Routes of what is held."""
        beside = {run.backward for run in self._runs.values()}
        behind = {run.outlet.next.remote for run in self._runs.values() if run.outlet.next}
        return (beside | behind) - {self._own}

    @property
    def stuck(self) -> bool:
        """Whether all Sessions that are held wait for something that does not come."""
        now = self._clock.monotonic()
        return all(run.is_stuck(now) for run in self._runs.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held."""
        return self._executor.weight_bytes

    def drain(self) -> None:
        """Admit no more Sessions."""
        self._leaving = True

    def resume(self) -> None:
        """Admit Sessions again."""
        self._leaving = False

    async def close(self) -> None:
        """End all Sessions, telling their Clients; idempotent."""
        self.drain()
        for run in list(self._runs.values()):
            self._fail(run, self._own, "leaving", "the host is leaving")
        await self._tidings.told()
        # What still points here would keep the weights in memory when the Host has moved on.
        self._links.unhandle(OpenSession, Reroute, Resume, CloseSession, WatchSession)
        self._links.off_ended(self._on_link_ended)
        self._rows.close()
        self._audits.close()
        self._dials.close()
        await self._tasks.close()
        await self._scheduler.stop()

    # --- admission --------------------------------------------------------------------

    async def _on_open(self, link: Link, message: OpenSession, _body: memoryview) -> None:
        brought = len(message.past) + len(message.seen)
        await self._pace.turn(link.remote, OPENING + brought // TOKENS)
        # One at a time of each Client: else one that opens and closes keeps all others waiting.
        while (before := self._opening.get(link.remote)) is not None:
            await asyncio.wait([before])
        old = self._find(link, message.session)
        if old is not None and old.state.epoch < message.epoch:
            self._forget(old)
        try:
            need = self._admit(message, link)
            run = self._run(message, link, need)
        except Refused as error:
            self.meter.tally.refused[error.reason] += 1
            await link.send(SessionRefused(message.session, error.reason, str(error)[:512]))
            return
        self.meter.tally.opened += 1
        self.kv_used += need
        self._runs[run.state.name] = run
        opening = self._tasks.spawn(run.open(), "open")
        if opening is not None:
            self._opening[link.remote] = opening
            opening.add_done_callback(lambda _: self._opening.pop(link.remote, None))
        if not self._start(run):
            self._forget(run)
            self.meter.tally.refused["busy"] += 1
            await link.send(SessionRefused(message.session, "busy", "too many sessions"))

    def _run(self, message: OpenSession, client: Link, need: int) -> StageRun:
        times = PassClock(self._clock, self.round_trip) if message.timed else None
        return StageRun(
            self._own,
            self._model,
            message,
            client,
            self._scheduler,
            self._clock,
            need,
            self._executor.rows_alone,
            times,
            self._learned[message.route[message.index].part.start],
        )

    def _find(self, client: Link, session: bytes) -> StageRun | None:
        """A Session of whoever is at the other end of a link."""
        return self._runs.get(common_name(client.remote, session))

    def _admit(self, message: OpenSession, client: Link) -> int:
        if self._find(client, message.session) is not None:
            raise Refused("you have a session of that id here already")
        while True:
            terms = self._terms(client)
            try:
                return admit(message, terms)
            except Refused as error:
                if error.reason not in ("busy", "memory"):
                    raise
                # Not for what there would be no room for in any case.
                admit(message, replace(terms, kv_used=0, sessions=0))
                if not self._make_room():
                    raise

    def _make_room(self) -> bool:
        """Free a Session of which no use was made for a while; whether there was one."""
        now = self._clock.monotonic()
        idle = [run for run in self._runs.values() if run.is_idle(now)]
        if idle:
            text = "nothing was run for a while, and others need the room"
            self._fail(min(idle, key=lambda run: run.lane.since), self._own, "lost", text)
        return bool(idle)

    def _terms(self, client: Link) -> StageTerms:
        return StageTerms(
            self._own,
            self._model,
            self._executor.slice,
            self.kv_used,
            self.kv_budget,
            len(self._runs),
            self._leaving,
            sum(run.is_client(client) for run in self._runs.values()),
        )

    def _start(self, run: StageRun) -> bool:
        """Serve a Session in a task of its own, in place of the one that did so before."""
        before = run.task
        if before is not None:
            before.cancel()
        run.task = self._tasks.spawn(self._serve(run, before), "session")
        return run.task is not None

    async def _serve(self, run: StageRun, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        work = run.serve(self._dials)
        while True:
            try:
                await work
            except RunFailed as error:
                if not error.kept:
                    self._fail(run, error.node, error.reason, str(error))
                    return
                self._pause(run, error.node, error.reason, str(error))
            # What is under way is worth having, whoever takes the place of the lost.
            work = run.collect()

    # --- other Routes -----------------------------------------------------------------

    async def _on_reroute(self, link: Link, message: Reroute, _body: memoryview) -> None:
        await self._pace.turn(link.remote)
        run = self._find(link, message.session)
        if run is None:
            text = "this host does not hold the session"
            failed = SessionFailed(message.session, self._own, "lost", text, epoch=message.epoch)
            await link.send(failed)
            return
        run.hear()
        if message.epoch <= run.state.epoch:
            return
        try:
            check_route(message.route, message.index, self._model.shape.layers)
            run.state.check_reroute(message, self._own)
        except Refused as error:
            self._fail(run, self._own, error.reason, str(error))
            return
        run.reroute(message, link)
        if not self._start(run):
            self._fail(run, self._own, "busy", "too many sessions")

    async def _on_resume(self, link: Link, message: Resume, _body: memoryview) -> None:
        await self._pace.turn(link.remote)
        run = self._find(link, message.session)
        if run is None:
            return
        run.hear()
        if run.resume(message):
            self._start(run)

    # --- ends -------------------------------------------------------------------------

    async def _on_close(self, link: Link, message: CloseSession, _body: memoryview) -> None:
        run = self._find(link, message.session)
        if run is not None:
            self._forget(run)

    async def _on_watch(self, link: Link, message: WatchSession, _body: memoryview) -> None:
        beside = self._runs.get(message.session)
        if beside is not None and beside.is_beside(link):
            # What a Client has the Stage before ask does not count as that one's own questions.
            await self._pace.turn((link.remote, "beside"))
            await link.send(SessionAlive(message.session))
            return
        await self._pace.turn(link.remote)
        run = self._find(link, message.session)
        if run is not None:
            run.hear()
            await link.send(run.alive())
            run.next_watch.look(self._links, self._tasks)
        else:
            text = "this host does not hold the session"
            await link.send(SessionFailed(message.session, self._own, "lost", text))

    def _on_link_ended(self, link: Link) -> None:
        for run in list(self._runs.values()):
            if run.client is link:
                run.gone = self._clock.monotonic()
            if run.needs(link, other=self._links.find(link.remote)):
                text = f"the link to stage {short_text(link.remote)} ended"
                self._pause(run, link.remote, "lost", text)

    def _pause(self, run: StageRun, node: bytes, reason: RefusalReason, detail: str) -> None:
        """Keep what is here, for another may take that node's place; and say so once."""
        if self._runs.get(run.state.name) is not run:
            return
        if run.accuse(node, deaf=reason == "invalid"):
            self._tell(run, node, reason, detail, kept=True)

    def _fail(self, run: StageRun, node: bytes, reason: RefusalReason, detail: str) -> None:
        if self._runs.get(run.state.name) is not run:
            return
        self._forget(run)
        self.meter.tally.failed[reason] += 1
        self._tell(run, node, reason, detail, kept=False)

    def _tell(
        self, run: StageRun, node: bytes, reason: RefusalReason, detail: str, *, kept: bool
    ) -> None:
        state = run.state
        failed = SessionFailed(state.id, node, reason, detail[:512], kept=kept, epoch=state.epoch)
        self._tidings.tell(run.client, failed)

    def _forget(self, run: StageRun) -> None:
        """Free everything of a Session; its cache after what the executor runs now."""
        # The id may have been opened again: only this very run is to go.
        if self._runs.get(run.state.name) is not run:
            return
        del self._runs[run.state.name]
        self.meter.tally.closed += 1
        self._audits.forget(run)
        self.kv_used -= run.kv_bytes
        self._scheduler.close(run.lane)
        if run.task is not None and run.task is not asyncio.current_task():
            run.task.cancel()
        if not self._runs:
            self.on_empty()

    async def _sweep(self) -> None:
        """Free Sessions whose Client is not heard any more, or makes no use of them."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._free_overdue()

    def _free_overdue(self) -> None:
        # A call of its own: the last one looked at would be kept for as long as this sleeps.
        now = self._clock.monotonic()
        for run in list(self._runs.values()):
            why = run.overdue(now)
            if why is not None:
                self._fail(run, self._own, "lost", why)
