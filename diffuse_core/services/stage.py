"""The Stage: admits Sessions to a held Slice, hands each what arrives for it, and ends them.

Each Session has a task that sends on what its passes gave, so that a slow next Stage stops only
the Sessions that go through it. What runs when is the scheduler's business.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    OpenSession,
    RowsRun,
    SessionAlive,
    SessionFailed,
    SessionRefused,
    WatchSession,
)
from diffuse_core.domain.session import StageSession, StageTerms, admit
from diffuse_core.errors import ChannelClosed, DiffuseError, RefusalReason, Refused
from diffuse_core.services.meter import Meter
from diffuse_core.services.scheduler import Scheduler
from diffuse_core.services.stage_run import RunFailed, StageRun
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.records import ModelRef
    from diffuse_core.model_ports import Executor
    from diffuse_core.ports import Clock
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

IDLE_LIMIT_S = 300.0
SWEEP_S = 5.0


def _nothing() -> None:
    """Nobody waits for the last Session to end."""


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
        self._tasks = TaskOwner("stage")
        self._leaving = False
        self.on_empty: Callable[[], object] = _nothing
        """Called when the last Session is gone."""
        links.handle(OpenSession, self._on_open)
        links.handle(ForwardTokens, self._on_tokens)
        links.handle(ForwardHidden, self._on_hidden)
        links.handle(RowsRun, self._on_rows_run)
        links.handle(Credit, self._on_credit)
        links.handle(CloseSession, self._on_close)
        links.handle(WatchSession, self._on_watch)
        links.on_ended(self._on_link_ended)
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
            await self._fail(run, self._own, "leaving", "the host is leaving")
        # What still points here would keep the weights in memory when the Host has moved on.
        self._links.unhandle(OpenSession, ForwardTokens, ForwardHidden, RowsRun)
        self._links.unhandle(Credit, CloseSession, WatchSession)
        self._links.off_ended(self._on_link_ended)
        await self._tasks.close()
        await self._scheduler.stop()

    # --- admission --------------------------------------------------------------------

    async def _on_open(self, link: Link, message: OpenSession, _body: memoryview) -> None:
        try:
            need = admit(message, self._terms(message.session))
        except Refused as error:
            await link.send(SessionRefused(message.session, error.reason, str(error)[:512]))
            return
        run = StageRun(
            self._own,
            self._model,
            StageSession(message),
            link,
            self._scheduler,
            self._clock,
            need,
        )
        self.kv_used += need
        self._runs[message.session] = run
        run.task = self._tasks.spawn(self._serve(run), "session")
        if run.task is None:
            self._forget(run)
            await link.send(SessionRefused(message.session, "busy", "too many sessions"))

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

    async def _serve(self, run: StageRun) -> None:
        try:
            await run.serve(self._links)
        except RunFailed as error:
            await self._fail(run, error.node, error.reason, str(error))
        finally:
            self._forget(run)

    # --- rows -------------------------------------------------------------------------

    async def _on_tokens(self, link: Link, message: ForwardTokens, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or not run.state.is_first:
            return
        if link is not run.client:
            if link.remote != run.state.tail.node:
                return
            run.source = link
        try:
            run.take_tokens(message)
        except Refused as error:
            await self._fail(run, self._own, "invalid", str(error))

    async def _on_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or run.state.before is None or link.remote != run.state.before.node:
            return
        try:
            run.take_hidden(message, body)
            run.source = link
        except Refused as error:
            await self._fail(run, NodeId(run.state.before.node), "invalid", str(error))

    async def _on_rows_run(self, link: Link, message: RowsRun, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or run.state.after is None or link.remote != run.state.after.node:
            return
        try:
            run.has_room(message.rows)
        except Refused as error:
            await self._fail(run, link.remote, "invalid", str(error))

    async def _on_credit(self, link: Link, message: Credit, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or link is not run.client or not run.state.is_last:
            return
        try:
            await run.grant(message.tokens)
        except (ChannelClosed, Refused) as error:
            await self._fail(run, NodeId(run.state.ring.node), "lost", str(error))

    # --- ends -------------------------------------------------------------------------

    async def _on_close(self, link: Link, message: CloseSession, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is not None and link is run.client:
            self._forget(run)

    async def _on_watch(self, link: Link, message: WatchSession, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is not None and link is run.client:
            await link.send(SessionAlive(message.session))
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
                self._forget(run)
            elif link in (run.next, run.source):
                text = f"the link to stage {short_text(link.remote)} ended"
                self._tasks.spawn(self._fail(run, link.remote, "lost", text), "lost")

    async def _fail(self, run: StageRun, node: NodeId, reason: RefusalReason, detail: str) -> None:
        if self._runs.get(run.state.id) is not run:
            return
        self._forget(run)
        try:
            await run.client.send(SessionFailed(run.state.id, node, reason, detail[:512]))
        except DiffuseError as error:
            log.debug("could not tell the client of a failure: %s", error)

    def _forget(self, run: StageRun) -> None:
        """Free everything of a Session; its cache after what the executor runs now."""
        # The id may have been opened again: only this very run is to go.
        if self._runs.get(run.state.id) is not run:
            return
        del self._runs[run.state.id]
        self.kv_used -= run.kv_bytes
        self._scheduler.close(run.lane)
        if run.task is not None and run.task is not asyncio.current_task():
            run.task.cancel()
        if not self._runs:
            self.on_empty()

    async def _sweep(self) -> None:
        """Free Sessions that nobody has used for long: their client is stuck or lost its way."""
        while True:
            await asyncio.sleep(SWEEP_S)
            limit = self._clock.monotonic() - IDLE_LIMIT_S
            for run in [run for run in self._runs.values() if run.touched < limit]:
                await self._fail(run, self._own, "lost", "the session was idle for too long")
