"""The attachment: the owner's end of the feed, used by the terminal app and by commands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.owner_messages import (
    CancelGenerate,
    Generate,
    Generated,
    NotAllowed,
    StopNode,
    Subscribe,
    Update,
)
from diffuse_core.domain.view import (
    Audited,
    Failed,
    FeedUpdate,
    Finished,
    GenerateEvent,
    GenerateRequest,
)
from diffuse_core.errors import ChannelClosed, DiffuseError, Refused
from diffuse_core.services.links import Link, Links

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.ports import Transport

QUEUE_UPDATES = 4
QUEUE_EVENTS = 4096
MAX_EVENTS = 256
CANCEL_TIMEOUT_S = 1.0
NOT_THE_OWNER = (
    "the node here was started with another owner.key: put that back, or end the node by a signal "
    "and start it again"
)


class NodeAttachment:
    """A running node as its owner sees it; implements ports.Attachment."""

    def __init__(self, transport: Transport) -> None:
        self._links = Links(transport)
        self._link: Link | None = None
        self._updates: asyncio.Queue[FeedUpdate | None] = asyncio.Queue(QUEUE_UPDATES)
        self._answers: dict[int, asyncio.Queue[GenerateEvent]] = {}
        self._ids = itertools.count(1)
        self._refusal: str | None = None
        self._over = asyncio.Event()
        self._links.handle(Update, self._on_update)
        self._links.handle(Generated, self._on_generated)
        self._links.handle(NotAllowed, self._on_refused)
        self._links.on_ended(self._on_ended)

    async def open(self, address: str, node: NodeId) -> None:
        """Dial `node` at `address`.

        Raises:
            Unreachable: nothing there.
        """
        self._link = await self._links.dial(address, node)

    def _open_link(self) -> Link:
        if self._link is None or self._link.closed:
            raise self._gone()
        return self._link

    def _gone(self) -> DiffuseError:
        if self._refusal is not None:
            return Refused(self._refusal, "owner")
        return ChannelClosed("the node this was attached to is gone")

    async def _send(self, message: AnyMessage) -> None:
        """Send it; where the node refused us and closed the channel meanwhile, tell that."""
        link = self._open_link()
        try:
            await link.send(message)
        except ChannelClosed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT_S):
                    await self._over.wait()
            raise self._gone() from None

    async def updates(self) -> AsyncGenerator[FeedUpdate, None]:
        """Updates, about one a second.

        Raises:
            ChannelClosed: the node went.
            Refused: this is not its owner.
        """
        await self._send(Subscribe())
        while (update := await self._updates.get()) is not None:
            yield update
        raise self._gone()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Events of a generation; the last is Finished, Failed, or the last Audited that follows.

        Closing cancels it.
        """
        link = self._open_link()
        number = next(self._ids)
        answers = self._answers[number] = asyncio.Queue(QUEUE_EVENTS)
        over, audits = False, 0
        try:
            await self._send(Generate(number, request))
            while not over:
                event = await answers.get()
                if isinstance(event, Finished):
                    audits, over = event.audits, event.audits == 0
                elif isinstance(event, Audited):
                    # Those before Finished were not announced.
                    audits, over = audits - 1, audits == 1
                else:
                    over = isinstance(event, Failed)
                yield event
        finally:
            self._answers.pop(number, None)
            if not over and not link.closed:
                with contextlib.suppress(ChannelClosed, TimeoutError):
                    async with asyncio.timeout(CANCEL_TIMEOUT_S):
                        await link.send(CancelGenerate(number))

    async def stop_node(self, patience: float | None = None) -> None:
        """Ask the node to shut down; Sessions may take `patience` seconds, None its usual time.

        A refusal is told by `updates`.
        """
        await self._send(StopNode(patience))

    async def close(self) -> None:
        """Detach; the node goes on."""
        await self._links.close()

    async def _on_update(self, _link: Link, message: Update, _body: memoryview) -> None:
        feed = message.feed
        if self._updates.full():
            # A slow screen wants the newest picture, but every event.
            behind = [self._updates.get_nowait() for _ in range(self._updates.qsize())]
            missed = [event for update in behind if update for event in update.events]
            events = (*missed, *feed.events)[-MAX_EVENTS:]
            feed = msgspec.structs.replace(feed, events=events)
        self._updates.put_nowait(feed)

    async def _on_generated(self, link: Link, message: Generated, _body: memoryview) -> None:
        answers = self._answers.get(message.request)
        if answers is None:
            return
        if answers.full():
            # Its reader is far behind; a hole in the text would be worse than an end.
            answers.get_nowait()
            answers.put_nowait(Failed("the answer came faster than it was taken; ask again", 6))
            del self._answers[message.request]
            await link.send(CancelGenerate(message.request))
            return
        answers.put_nowait(message.event)

    async def _on_refused(self, link: Link, message: NotAllowed, _body: memoryview) -> None:
        self._refusal = f"{message.detail} ({NOT_THE_OWNER})"
        await link.close()

    def _on_ended(self, _link: Link) -> None:
        self._over.set()
        if self._updates.full():
            self._updates.get_nowait()
        self._updates.put_nowait(None)
        failed = Failed("the node this was attached to is gone; start it again", 5)
        if self._refusal is not None:
            failed = Failed(self._refusal, 6)
        for answers in self._answers.values():
            if answers.full():
                answers.get_nowait()
            answers.put_nowait(failed)
