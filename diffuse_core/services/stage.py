"""The Stage: admits Sessions to a held Slice, hands each what arrives for it, and ends them.

Each Session has a task that sends on what its passes gave, so that a slow next Stage stops only
the Sessions that go through it. What runs when is the scheduler's business.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from diffuse_core.domain.admission import StageTerms, admit, check_route
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    OpenSession,
    Reroute,
    Resume,
    RowsRun,
    SessionAlive,
    SessionFailed,
    SessionRefused,
    WatchSession,
)
from diffuse_core.domain.rms_band import Learned
from diffuse_core.domain.token_line import Tokens
from diffuse_core.errors import RefusalReason, Refused
from diffuse_core.services.meter import Meter
from diffuse_core.services.pass_clock import PassClock
from diffuse_core.services.scheduler import Scheduler
from diffuse_core.services.stage_audit import StageAudits
from diffuse_core.services.stage_dials import StageDials
from diffuse_core.services.stage_outlet import NeighbourLost
from diffuse_core.services.stage_run import RunFailed, StageRun
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.records import ModelRef
    from diffuse_core.model_ports import Executor
    from diffuse_core.ports import Clock
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.links import Link, Links

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
    ) -> None:
        self._own = own
        self._links = links
        self._clock = clock
        self._executor = executor
        self._model = model
        self.kv_budget = kv_budget
        self.kv_used = 0
        self.meter = Meter(clock)
        self._scheduler = Scheduler(executor, compute, clock, self.meter)
        self._runs: dict[bytes, StageRun] = {}
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
        links.handle(ForwardTokens, self._on_tokens)
        links.handle(ForwardHidden, self._on_hidden)
        links.handle(RowsRun, self._on_rows_run)
        links.handle(Credit, self._on_credit)
        links.handle(CloseSession, self._on_close)
        links.handle(WatchSession, self._on_watch)
        # What is on the way of every token does not wait for its link's turn.
        links.handle_promptly(ForwardTokens, self._take_tokens)
        links.handle_promptly(ForwardHidden, self._take_hidden)
        links.on_ended(self._on_link_ended)
        self._audits = StageAudits(links, self._tasks, self._runs.get)
        self._tasks.spawn(self._sweep(), "sweep")

    @property
    def sessions(self) -> int:
        """How many Sessions are held now."""
        return len(self._runs)

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
            self._forget(run)
            await run.tell(run.failure(self._own, "leaving", "the host is leaving", kept=False))
        # What still points here would keep the weights in memory when the Host has moved on.
        self._links.unhandle(OpenSession, Reroute, Resume, ForwardTokens, ForwardHidden)
        self._links.unhandle(RowsRun, Credit, CloseSession, WatchSession)
        self._links.off_ended(self._on_link_ended)
        self._audits.close()
        self._dials.close()
        await self._tasks.close()
        await self._scheduler.stop()

    # --- admission --------------------------------------------------------------------

    async def _on_open(self, link: Link, message: OpenSession, _body: memoryview) -> None:
        # One at a time of each Client: else one that opens and closes keeps all others waiting.
        if (before := self._opening.get(link.remote)) is not None:
            await asyncio.wait([before])
        old = self._runs.get(message.session)
        if old is not None and old.is_client(link) and old.state.epoch < message.epoch:
            self._forget(old)
        try:
            need = admit(message, self._terms(message.session))
            run = self._run(message, link, need)
        except Refused as error:
            await link.send(SessionRefused(message.session, error.reason, str(error)[:512]))
            return
        self.kv_used += need
        self._runs[message.session] = run
        opening = self._tasks.spawn(run.open(), "open")
        if opening is not None:
            self._opening[link.remote] = opening
            opening.add_done_callback(lambda _: self._opening.pop(link.remote, None))
        if not self._start(run):
            self._forget(run)
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

    def _terms(self, session: bytes) -> StageTerms:
        if session in self._runs:
            raise Refused("that session id is in use")
        return StageTerms(
            self._own,
            self._model,
            self._executor.slice,
            self.kv_used,
            self.kv_budget,
            len(self._runs),
            self._leaving,
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
        run = self._runs.get(message.session)
        if run is None or not run.is_client(link):
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
        run = self._runs.get(message.session)
        if run is None or not run.is_client(link):
            return
        run.hear()
        if run.resume(message):
            self._start(run)

    # --- rows -------------------------------------------------------------------------

    async def _on_tokens(self, link: Link, message: ForwardTokens, body: memoryview) -> None:
        self._take_tokens(link, message, body)

    async def _on_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> None:
        self._take_hidden(link, message, body)

    def _take_tokens(self, link: Link, message: ForwardTokens, _body: memoryview) -> bool:
        run = self._runs.get(message.session)
        if run is None or not run.state.is_first or not run.listens(message.epoch):
            return True
        # One node may be both; what goes round the ring stands behind the prompt.
        of_client, of_tail = run.is_client(link), link.remote == run.state.tail.node
        if of_tail and message.position < run.state.prompt:
            of_tail = False
        try:
            if of_tail:
                run.outlet.source = link
                run.intake.ring(Tokens(message.position, message.tokens), message.marks)
            elif of_client:
                run.hear()
                run.intake.feed(Tokens(message.position, message.tokens))
        except Refused as error:
            if of_client:
                self._fail(run, self._own, "invalid", str(error))
            else:
                self._pause(run, link.remote, "invalid", str(error))
        return True

    def _take_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> bool:
        run = self._runs.get(message.session)
        if run is None or run.state.before is None or link.remote != run.state.before.node:
            return True
        if not run.listens(message.epoch):
            return True
        try:
            run.intake.take_hidden(message, body)
            run.outlet.source = link
        except Refused as error:
            self._pause(run, link.remote, "invalid", str(error))
        return True

    async def _on_rows_run(self, link: Link, message: RowsRun, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None:
            self._audits.rows_run(link, message)
            return
        if run.state.after is None or link.remote != run.state.after.node:
            return
        if not run.listens(message.epoch):
            return
        try:
            run.state.count_ran_after(message.rows)
            run.outlet.has_room()
        except Refused as error:
            self._pause(run, link.remote, "invalid", str(error))

    async def _on_credit(self, link: Link, message: Credit, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or not run.is_client(link) or not run.state.is_last:
            return
        run.hear()
        run.state.draws.grant(message.tokens)
        if not run.outlet.flowing:
            return
        try:
            await run.outlet.go_round()
        except NeighbourLost as error:
            self._pause(run, NodeId(run.state.ring.node), "lost", str(error))
        except Refused as error:
            self._fail(run, self._own, error.reason, str(error))

    # --- ends -------------------------------------------------------------------------

    async def _on_close(self, link: Link, message: CloseSession, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is not None and run.is_client(link):
            self._forget(run)

    async def _on_watch(self, link: Link, message: WatchSession, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is not None and run.is_client(link):
            run.hear()
            await link.send(run.alive())
            if run.is_next_relayed:
                # Not awaited: a Sentinel that reads no more would keep this Client waiting, too.
                self._tasks.spawn(run.watch_next(self._links), "watch")
        elif run is not None and run.is_beside(link):
            await link.send(SessionAlive(message.session))
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
        if self._runs.get(run.state.id) is not run:
            return
        if run.accuse(node, deaf=reason == "invalid"):
            self._tell(run, node, reason, detail, kept=True)

    def _fail(self, run: StageRun, node: NodeId, reason: RefusalReason, detail: str) -> None:
        if self._runs.get(run.state.id) is not run:
            return
        self._forget(run)
        self._tell(run, node, reason, detail, kept=False)

    def _tell(
        self, run: StageRun, node: bytes, reason: RefusalReason, detail: str, *, kept: bool
    ) -> None:
        """Tell the Client, in a task of its own: nothing here waits for its link."""
        self._tasks.spawn(run.tell(run.failure(node, reason, detail, kept=kept)), "failed")

    def _forget(self, run: StageRun) -> None:
        """Free everything of a Session; its cache after what the executor runs now."""
        # The id may have been opened again: only this very run is to go.
        if self._runs.get(run.state.id) is not run:
            return
        del self._runs[run.state.id]
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
            now = self._clock.monotonic()
            for run in list(self._runs.values()):
                why = run.overdue(now)
                if why is not None:
                    self._fail(run, self._own, "lost", why)
