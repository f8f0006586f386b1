"""One Session on one Stage: rows in, passes through the Slice, what they give along the ring."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.codec import MAX_BODY_BYTES
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import (
    ForwardHidden,
    ForwardTokens,
    RowsRun,
    SessionOpened,
    TokensDrawn,
    WatchSession,
)
from diffuse_core.domain.sampling import Sampler
from diffuse_core.domain.session import PREFILL_ROWS, StageSession
from diffuse_core.domain.shapes import HIDDEN_TYPE, ITEM_BYTES
from diffuse_core.errors import ChannelClosed, RefusalReason, Refused, Unreachable
from diffuse_core.model_ports import StageResult, StageStep, Tensor
from diffuse_core.services.scheduler import Lane, Scheduler, rows_of

if TYPE_CHECKING:
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)


ANSWER_S = 3.0
"""A next Stage that is asked over a Sentinel whether it lives answers sooner."""


class RunFailed(Exception):  # noqa: N818
    """The Session cannot go on: through whose fault, and why."""

    def __init__(self, node: bytes, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.node = NodeId(node)
        self.reason: RefusalReason = reason


class StageRun:
    """A Session being run: its state, its lane in the scheduler, and the links it uses."""

    def __init__(
        self,
        own: NodeId,
        model: ModelRef,
        state: StageSession,
        client: Link,
        scheduler: Scheduler,
        clock: Clock,
        kv_bytes: int,
    ) -> None:
        self._own = own
        self._model = model
        self._scheduler = scheduler
        self._clock = clock
        self.state = state
        self.client = client
        self.kv_bytes = kv_bytes
        self.lane = Lane(state.id)
        self.next: Link | None = None
        self.source: Link | None = None
        self.touched = clock.monotonic()
        self.task: asyncio.Task[None] | None = None
        self._asked: tuple[int, float] | None = None
        self._room = asyncio.Event()
        self._sampler = Sampler(state.decoding, state.prompt)

    async def serve(self, links: Links) -> None:
        """Open the Session, then send on what its passes give, until cancelled.

        Raises:
            RunFailed: it cannot go on.
        """
        target = self.state.ring if self.state.after is None else self.state.after
        try:
            await self._scheduler.open(self.lane, self.state.part, self.state.budget)
            if NodeId(target.node) != self._own:
                self.next = await links.to(NodeId(target.node), target.addresses)
            await self.client.send(SessionOpened(self.state.id))
            while True:
                await self._send_on(*await self._outcome())
        except Refused as error:
            raise RunFailed(self._own, error.reason, str(error)) from error
        except Unreachable as error:
            raise RunFailed(target.node, "lost", str(error)) from error
        except RunFailed:
            raise
        except Exception as error:
            log.exception("a session failed on stage %s", self.state.part)
            text = f"the session failed: {type(error).__name__}"
            raise RunFailed(self._own, "lost", text) from error

    # --- rows come in -----------------------------------------------------------------

    def take_tokens(self, message: ForwardTokens) -> None:
        """Have tokens run: a prompt in chunks of a size that depends on nothing but the model.

        Raises:
            Refused: they are not the next ones, or too many.
        """
        tokens = message.tokens
        self._take(message.position, len(tokens))
        width = self._model.shape.hidden * ITEM_BYTES[self._model.contract]
        rows = max(1, min(PREFILL_ROWS, MAX_BODY_BYTES // width))
        for at in range(0, len(tokens), rows):
            chunk = tokens[at : at + rows]
            self._submit(message.position + at, len(chunk), tokens=chunk)

    def take_hidden(self, message: ForwardHidden, body: memoryview) -> None:
        """Have hidden states run.

        Raises:
            Refused: they do not fit the model or the Session.
        """
        hidden = self._tensor(message, body)
        self._take(message.position, message.rows)
        self._submit(message.position, message.rows, hidden=hidden)

    def _tensor(self, message: ForwardHidden, body: memoryview) -> Tensor:
        contract = self._model.contract
        shape = (message.rows, self._model.shape.hidden)
        size = shape[0] * shape[1] * ITEM_BYTES[contract]
        if size != len(body) or message.rows > PREFILL_ROWS:
            raise Refused(f"hidden states of {shape} in {len(body)} bytes do not fit")
        return Tensor(HIDDEN_TYPE[contract], shape, body)

    def _take(self, position: int, rows: int) -> None:
        self.state.take_rows(position, rows)
        self.touched = self._clock.monotonic()

    def _submit(
        self,
        position: int,
        rows: int,
        *,
        tokens: tuple[int, ...] | None = None,
        hidden: Tensor | None = None,
    ) -> None:
        state = self.state
        wanted = state.is_last and position + rows == state.prompt + state.drawn
        step = StageStep(
            session=state.id,
            part=state.part,
            position=position,
            tokens=tokens,
            hidden=hidden,
            chooser=self._sampler if wanted else None,
        )
        self._scheduler.submit(self.lane, step)

    # --- what came of them goes on ----------------------------------------------------

    async def _outcome(self) -> tuple[StageStep, StageResult]:
        try:
            return await self._scheduler.outcome(self.lane)
        except Refused as error:
            before = self.state.before
            if error.reason == "invalid" and before is not None:
                # What came in was wrong; what was made of it here is refused as "lost".
                raise RunFailed(before.node, "invalid", str(error)) from error
            raise

    async def _send_on(self, step: StageStep, result: StageResult) -> None:
        state, rows = self.state, rows_of(step)
        self.touched = self._clock.monotonic()
        ran = state.count_ran(rows)
        if ran and self.source is not None:
            await self.source.send(RowsRun(state.id, ran))
        if not state.is_last:
            await self._pass_on(step.position, result)
        for drawn in result.drawn:
            await self._drawn(step.position + rows, drawn.token)

    async def _pass_on(self, position: int, result: StageResult) -> None:
        hidden = result.hidden
        if hidden is None or self.next is None:
            raise Refused("the executor gave no hidden states for the next stage", "lost")
        rows = hidden.shape[0]
        while not self.state.may_send(rows):
            self._room.clear()
            await self._room.wait()
        message = ForwardHidden(self.state.id, position, rows)
        await self.next.send(message, hidden.data)

    async def watch_next(self, links: Links) -> None:
        """While the Client waits: end a relayed link to the next Stage that nothing comes over.

        Any answer will do. We are asked again and again, so that one look is short.
        """
        link, now = self.next, self._clock.monotonic()
        if link is None or link.relayed_through is None or link.closed:
            return
        if self._asked is None or self._asked[0] != link.heard:
            self._asked = link.heard, now
            with contextlib.suppress(ChannelClosed):
                await link.send(WatchSession(self.state.id))
        elif now - self._asked[1] >= ANSWER_S:
            links.doubt(link)
            await link.close()

    def is_beside(self, link: Link) -> bool:
        """Whether the Stage before this one in the ring may be at the other end."""
        before = self.state.tail if self.state.before is None else self.state.before
        return link.remote == before.node

    def has_room(self, rows: int) -> None:
        """The next Stage ran so many rows more.

        Raises:
            Refused: it was never sent so many.
        """
        self.state.count_ran_after(rows)
        self._room.set()

    async def _drawn(self, position: int, token: int) -> None:
        finish = self.state.draw(token)
        on = finish is None and self.state.may_continue(token)
        try:
            if on and self.next is None:
                # Before the word goes out, so that it is there for the very next pass.
                self._run_own(token)
        finally:
            await self.client.send(TokensDrawn(self.state.id, position, (token,), finish))
        if on and self.next is not None:
            await self._round(self.next, token)

    async def grant(self, tokens: int) -> None:
        """The Client takes so many tokens more: the one that was held back goes on.

        Raises:
            Refused: it cannot be run.
            ChannelClosed: the first Stage is gone.
        """
        self.touched = self._clock.monotonic()
        held = self.state.grant(tokens)
        if held is None:
            return
        if self.next is None:
            self._run_own(held)
        else:
            await self._round(self.next, held)

    def _run_own(self, token: int) -> None:
        """The ring of a single Stage."""
        self._take(self._drawn_at(), 1)
        self._submit(self._drawn_at(), 1, tokens=(token,))

    async def _round(self, first: Link, token: int) -> None:
        """Send a drawn token to the first Stage: the ring."""
        await first.send(ForwardTokens(self.state.id, self._drawn_at(), (token,)))

    def _drawn_at(self) -> int:
        return self.state.prompt + self.state.drawn - 1
