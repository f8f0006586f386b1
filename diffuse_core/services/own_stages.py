"""Stages that a Client runs itself, at the ends of its Routes, in private mode.

They are Stages as those of Hosts are, with the Client's own node id, which nobody can dial: others
reach it over the links that it opened. Between the Client and each of them is a channel in this
process, and one from the last back to the first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from diffuse_core.domain.messages import (
    ForwardHidden,
    ForwardTokens,
    Hop,
    RowsRun,
    WatchSession,
)
from diffuse_core.errors import ChannelClosed, Refused
from diffuse_core.services.links import Link, Traffic
from diffuse_core.services.loopback import loopback
from diffuse_core.services.own_links import Guesses, OwnLinks
from diffuse_core.services.stage import StageService
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import Executor
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Handler, Links, PromptHandler
    from diffuse_core.services.own_layers import OwnLayers

    Take = Callable[[Link, AnyMessage, memoryview], Awaitable[None]]


class OwnStages:
    """The Client's own Stages, over layers that are loaded once they are needed."""

    def __init__(self, own: NodeId, links: Links, clock: Clock, layers: OwnLayers) -> None:
        self.node = own
        self._pool = links
        self._clock = clock
        self._layers = layers
        self._guesses = Guesses()
        self._tasks = TaskOwner("own stages")
        self._preparing = asyncio.Lock()
        self._stages: list[StageService] = []
        self._links: dict[Slice, Link] = {}
        self._opened: list[Link] = []
        self._answers: Handler[Any] | None = None

    def answer_to(self, take: Handler[Any]) -> None:
        """Give `take` what the Stages answer to the Client."""
        self._answers = take

    def hops(self, parts: tuple[Slice, ...]) -> tuple[Hop, ...]:
        """These parts as Stages of a Route."""
        return tuple(Hop(self.node, (), part) for part in parts)

    @property
    def stages(self) -> tuple[StageService, ...]:
        """What runs now: the first layers, and the last ones if they are here."""
        return tuple(self._stages)

    def link(self, part: Slice) -> Link:
        """The Client's link to its own Stage of a part that is ready."""
        return self._links[part]

    async def ready(self, model: ModelRef, parts: tuple[Slice, ...], rows: int) -> None:
        """Have Stages for these parts, with room for a Session of `rows` positions.

        Raises:
            UsageError: there is no room for them.
            ModelUnknown: the weights cannot be had.
            ModelUnusable: they are not the network's.
            Refused: other layers are in use.
        """
        async with self._preparing:
            if not self._stages or not self._layers.holds(model, parts):
                if any(stage.sessions for stage in self._stages):
                    text = "another answer uses other layers here; wait until it is done"
                    raise Refused(text, "busy")
                await self._end_stages()
            await self._layers.load(model, parts, rows)
            if not self._stages:
                self._begin(model)

    async def close(self) -> None:
        """End the Stages and their links; the layers stay loaded."""
        await self._end_stages()
        await self._tasks.close()

    def _begin(self, model: ModelRef) -> None:
        sides = []
        budgets = self._layers.kv_budgets()
        for executor, budget in zip(self._layers.executors, budgets, strict=True):
            sides.append(self._stage(model, executor, budget))
        first, last = sides[0], sides[-1]
        if last is not first:
            last.inner = self._channel(first.dispatch, first.dispatch)
            self._pool.handle(ForwardHidden, self._revealing(last))
            self._pool.handle_promptly(ForwardHidden, self._revealing_promptly(last))
        self._pool.handle(ForwardTokens, first.dispatch)
        self._pool.handle_promptly(ForwardTokens, first.promptly)
        self._pool.handle(RowsRun, first.dispatch)
        # A Stage before one of these may ask whether it lives, and so only the Client else.
        self._pool.handle(WatchSession, last.dispatch)

    def _stage(self, model: ModelRef, executor: Executor, kv_budget: int) -> OwnLinks:
        side = OwnLinks(self._pool, self.node, self._guesses)
        stage = StageService(
            self.node,
            cast("Links", side),
            self._clock,
            self._layers.compute,
            executor,
            model,
            kv_budget,
        )
        self._stages.append(stage)
        self._links[executor.slice] = self._channel(side.dispatch, self._answer)
        return side

    def _channel(self, ask: Take, answer: Take) -> Link:
        """A link of which `ask` gets what is sent, and `answer` what is sent back."""
        ends = [Link(end, Traffic(), dialled=True) for end in loopback(self.node)]
        self._opened += ends
        for link, take in zip(ends, (answer, ask), strict=True):
            self._tasks.spawn(self._read(link, take), "read")
        return ends[0]

    async def _read(self, link: Link, take: Take) -> None:
        try:
            while not link.closed:
                message, body = await link.receive()
                if message is not None:
                    await take(link, message, body)
        except ChannelClosed:
            return
        finally:
            await link.close()

    async def _answer(self, link: Link, message: AnyMessage, body: memoryview) -> None:
        if self._answers is not None:
            await self._answers(link, message, body)

    def _revealing(self, last: OwnLinks) -> Take:
        async def take(link: Link, message: AnyMessage, body: memoryview) -> None:
            if isinstance(message, ForwardHidden):
                await last.dispatch(link, self._guesses.reveal(message), body)

        return take

    def _revealing_promptly(self, last: OwnLinks) -> PromptHandler[ForwardHidden]:
        def take(link: Link, message: ForwardHidden, body: memoryview) -> bool:
            return last.promptly(link, self._guesses.reveal(message), body)

        return take

    async def _end_stages(self) -> None:
        self._pool.unhandle(ForwardHidden, ForwardTokens, RowsRun, WatchSession)
        stages, self._stages = self._stages, []
        for stage in stages:
            await stage.close()
        opened, self._opened = self._opened, []
        self._links.clear()
        for link in opened:
            await link.close()
