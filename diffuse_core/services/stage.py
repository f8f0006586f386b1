"""The Stage: runs a held Slice for many Sessions, and passes results along the ring.

Each Session has an inbox and a task, so that rows of one Session stay in order and a slow next
Stage stops only the Sessions that go through it. All compute goes through the one executor thread.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.codec import MAX_BODY_BYTES
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    OpenSession,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokenDrawn,
    WatchSession,
)
from diffuse_core.domain.session import StageSession, StageTerms, admit
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.errors import (
    ChannelClosed,
    DiffuseError,
    RefusalReason,
    Refused,
    Unreachable,
)
from diffuse_core.ports import Clock, Executor, StageResult, StageStep, Tensor
from diffuse_core.services.meter import Meter
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

PREFILL_ROWS = 512
IDLE_LIMIT_S = 300.0
SWEEP_S = 5.0
MAX_INBOX = 512


@dataclass
class _Work:
    """Rows waiting for their pass."""

    position: int
    want_token: bool
    tokens: tuple[int, ...] | None = None
    hidden: Tensor | None = None

    @property
    def rows(self) -> int:
        """How many positions the pass computes."""
        if self.tokens is not None:
            return len(self.tokens)
        return self.hidden.shape[0] if self.hidden is not None else 0


class _Run:
    """A Session being run: its state, its inbox, and the links it uses."""

    def __init__(self, state: StageSession, client: Link, now: float) -> None:
        self.state = state
        self.client = client
        self.inbox: asyncio.Queue[_Work] = asyncio.Queue(MAX_INBOX)
        self.next: Link | None = None
        self.source: Link | None = None
        self.kv_bytes = 0
        self.touched = now
        self.task: asyncio.Task[None] | None = None


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
        self._compute = compute
        self._executor = executor
        self._model = model
        self.kv_budget = kv_budget
        self.kv_used = 0
        self.meter = Meter(clock)
        self._runs: dict[bytes, _Run] = {}
        self._tasks = TaskOwner("stage")
        self._leaving = False
        links.handle(OpenSession, self._on_open)
        links.handle(ForwardTokens, self._on_tokens)
        links.handle(ForwardHidden, self._on_hidden)
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

    async def close(self) -> None:
        """End all Sessions, telling their Clients."""
        self.drain()
        for run in list(self._runs.values()):
            await self._fail(run, self._own, "leaving", "the host is leaving")
        # What still points here would keep the weights in memory when the Host has moved on.
        self._links.unhandle(OpenSession, ForwardTokens, ForwardHidden, Credit, CloseSession)
        self._links.unhandle(WatchSession)
        self._links.off_ended(self._on_link_ended)
        await self._tasks.close()

    # --- admission --------------------------------------------------------------------

    async def _on_open(self, link: Link, message: OpenSession, _body: memoryview) -> None:
        try:
            need = admit(message, self._terms(message.session))
        except Refused as error:
            await link.send(SessionRefused(message.session, error.reason, str(error)[:512]))
            return
        run = _Run(StageSession(message), link, self._clock.monotonic())
        run.kv_bytes = need
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

    async def _serve(self, run: _Run) -> None:
        """Open the Session, then run its rows in order until it ends."""
        state = run.state
        target = state.ring if state.after is None else state.after
        try:
            await self._compute.run(
                lambda: self._executor.open(state.id, state.part, state.budget)
            )
            if NodeId(target.node) != self._own:
                run.next = await self._links.to(NodeId(target.node), target.addresses)
            await run.client.send(SessionOpened(state.id))
            while True:
                await self._step(run, await run.inbox.get())
        except Refused as error:
            await self._fail(run, self._own, "invalid", str(error))
        except Unreachable as error:
            await self._fail(run, NodeId(target.node), "lost", str(error))
        except Exception as error:
            log.exception("a pass failed on stage %s", state.part)
            await self._fail(run, self._own, "lost", f"the pass failed: {type(error).__name__}")
        finally:
            self._forget(run)

    # --- rows -------------------------------------------------------------------------

    async def _step(self, run: _Run, work: _Work) -> None:
        state = run.state
        step = StageStep(
            session=state.id,
            part=state.part,
            position=work.position,
            tokens=work.tokens,
            hidden=work.hidden,
            want_token=work.want_token and state.is_last,
            sampling=state.decoding.sampling,
        )
        result = await self._compute.run(lambda: self._executor.run(step))
        self.meter.add(work.rows, result.seconds)
        run.touched = self._clock.monotonic()
        if not state.is_last:
            await self._pass_on(run, work, result)
        elif result.token is not None:
            await self._drawn(run, work.position + work.rows, result.token)

    async def _pass_on(self, run: _Run, work: _Work, result: StageResult) -> None:
        hidden = result.hidden
        if hidden is None or run.next is None:
            raise Refused("the executor gave no hidden states for the next stage")
        message = ForwardHidden(
            run.state.id,
            work.position,
            hidden.shape[0],
            hidden.shape[1],
            hidden.dtype,
            work.want_token,
        )
        await run.next.send(message, hidden.data)

    async def _drawn(self, run: _Run, position: int, token: int) -> None:
        finish = run.state.draw(token)
        await run.client.send(TokenDrawn(run.state.id, position, token, finish))
        if finish is None and run.state.may_continue(token):
            await self._round(run, token)

    async def _round(self, run: _Run, token: int) -> None:
        """Send a drawn token to the first Stage: the ring."""
        state = run.state
        position = state.prompt + state.drawn - 1
        if run.next is None:
            self._take(run, position, 1)
            self._queue(run, _Work(position, want_token=True, tokens=(token,)))
            return
        await run.next.send(ForwardTokens(state.id, position, (token,), want_token=True))

    def _take(self, run: _Run, position: int, rows: int) -> None:
        run.state.take_rows(position, rows)
        run.touched = self._clock.monotonic()

    async def _on_tokens(self, link: Link, message: ForwardTokens, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or not run.state.is_first:
            return
        if link is not run.client:
            if link.remote != run.state.tail.node:
                return
            run.source = link
        try:
            self._take(run, message.position, len(message.tokens))
            width = self._model.shape.hidden * ITEM_BYTES[self._model.contract]
            rows = max(1, min(PREFILL_ROWS, MAX_BODY_BYTES // width))
            for at in range(0, len(message.tokens), rows):
                chunk = message.tokens[at : at + rows]
                last = at + rows >= len(message.tokens)
                self._queue(run, _Work(message.position + at, message.want_token and last, chunk))
        except Refused as error:
            await self._fail(run, self._own, "invalid", str(error))

    async def _on_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or run.state.before is None or link.remote != run.state.before.node:
            return
        try:
            hidden = self._tensor(message, body)
            run.source = link
            self._take(run, message.position, message.rows)
            self._queue(run, _Work(message.position, message.want_token, hidden=hidden))
        except Refused as error:
            await self._fail(run, NodeId(run.state.before.node), "invalid", str(error))

    def _tensor(self, message: ForwardHidden, body: memoryview) -> Tensor:
        shape = (message.rows, message.width)
        size = message.rows * message.width * (4 if message.dtype == "fp32" else 2)
        fits = message.width == self._model.shape.hidden and size == len(body)
        if not fits or message.dtype != self._model.contract or message.rows > PREFILL_ROWS:
            raise Refused(
                f"{message.dtype} hidden states of {shape} in {len(body)} bytes do not fit"
            )
        return Tensor(message.dtype, shape, body)

    def _queue(self, run: _Run, work: _Work) -> None:
        try:
            run.inbox.put_nowait(work)
        except asyncio.QueueFull:
            raise Refused("too many rows wait at this stage") from None

    async def _on_credit(self, link: Link, message: Credit, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None or link is not run.client or not run.state.is_last:
            return
        run.touched = self._clock.monotonic()
        held = run.state.grant(message.tokens)
        if held is not None:
            try:
                await self._round(run, held)
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

    async def _fail(self, run: _Run, node: NodeId, reason: RefusalReason, detail: str) -> None:
        if self._runs.get(run.state.id) is not run:
            return
        self._forget(run)
        try:
            await run.client.send(SessionFailed(run.state.id, node, reason, detail[:512]))
        except DiffuseError as error:
            log.debug("could not tell the client of a failure: %s", error)

    def _forget(self, run: _Run) -> None:
        """Free everything of a Session; the executor frees its cache after what it runs now."""
        # The id may have been opened again: only this very run is to go.
        if self._runs.get(run.state.id) is not run:
            return
        del self._runs[run.state.id]
        self.kv_used -= run.kv_bytes
        self._compute.post(lambda: self._executor.close(run.state.id))
        if run.task is not None and run.task is not asyncio.current_task():
            run.task.cancel()

    async def _sweep(self) -> None:
        """Free Sessions that nobody has used for long: their client is stuck or lost its way."""
        while True:
            await asyncio.sleep(SWEEP_S)
            limit = self._clock.monotonic() - IDLE_LIMIT_S
            for run in [run for run in self._runs.values() if run.touched < limit]:
                await self._fail(run, self._own, "lost", "the session was idle for too long")
