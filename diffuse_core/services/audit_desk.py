"""A Client's end of audits: Sessions of their own on one node each, and what Stages tell."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import Mirror, MirrorReady, Spots, TellSpots
from diffuse_core.domain.messages import (
    CloseSession,
    ForwardTokens,
    OpenSession,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    WatchSession,
)
from diffuse_core.domain.spots import MAX_SPOTS, TOLD_ROWS, numbers
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from diffuse_core.services.links import Link
    from diffuse_core.services.session_desk import FromStage, SessionDesk

ANSWER_S = 10.0
"""A Stage tells what it knows in less."""
LOOK_S = 0.25
"""How often an auditing node is asked how far it is."""

Question = tuple[bytes, "Link", bool]


class AuditFailed(Exception):  # noqa: N818
    """An audit could not be carried out: why. It says nothing against anybody."""


class AuditDesk:
    """Asks Stages for numbers, and hands out what they answer. One question each at a time."""

    def __init__(self, desk: SessionDesk) -> None:
        self.desk = desk
        links = desk.links
        self._waiting: dict[Question, asyncio.Future[Sequence[float]]] = {}
        self._ready: dict[tuple[bytes, Link], asyncio.Future[int]] = {}
        links.handle(Spots, self._on_spots)
        links.handle(MirrorReady, self._on_ready)
        links.on_ended(self._on_ended)

    async def _on_spots(self, link: Link, message: Spots, body: memoryview) -> None:
        waiting = self._waiting.get((message.session, link, message.given))
        if waiting is None or waiting.done():
            return
        if len(body) % 4 or len(body) > 4 * MAX_SPOTS * TOLD_ROWS:
            waiting.set_exception(AuditFailed("what it told makes no sense"))
        else:
            waiting.set_result(numbers(body))

    async def _on_ready(self, link: Link, message: MirrorReady, _body: memoryview) -> None:
        waiting = self._ready.get((message.audit, link))
        if waiting is not None and not waiting.done():
            waiting.set_result(message.rows)

    def _on_ended(self, link: Link) -> None:
        asked: list[asyncio.Future[Sequence[float]] | asyncio.Future[int]] = [
            waiting for (_, other, _), waiting in self._waiting.items() if other is link
        ]
        asked += [waiting for (_, other), waiting in self._ready.items() if other is link]
        for waiting in asked:
            if not waiting.done():
                waiting.set_exception(AuditFailed("the link ended"))

    async def spots(
        self,
        link: Link,
        session: bytes,
        rows: int,
        width: int,
        spots: tuple[int, ...] = (),
        *,
        given: bool = False,
    ) -> list[float]:
        """Numbers of the first `rows` rows, `width` of each.

        Raises:
            AuditFailed: they are not there.
        """
        found: list[float] = []
        for position in range(0, rows, TOLD_ROWS):
            count = min(TOLD_ROWS, rows - position)
            key = session, link, given
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await link.send(TellSpots(session, position, count, spots, given))
                    told = await waiting
            except ChannelClosed as error:
                raise AuditFailed("the link ended") from error
            except TimeoutError:
                raise AuditFailed("it does not tell what it computed") from None
            finally:
                self._waiting.pop(key, None)
            if len(told) != count * width:
                raise AuditFailed("it does not tell what it computed")
            found += told
        return found

    async def ready(self, link: Link, audit: bytes, send: Mirror) -> int:
        """Rows that a Stage lets be taken."""
        key = audit, link
        waiting = self._ready[key] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_S):
                await link.send(send)
                rows: int = await waiting
        except ChannelClosed as error:
            raise AuditFailed("the link ended") from error
        except TimeoutError:
            raise AuditFailed("the stage before does not answer") from None
        else:
            return rows
        finally:
            self._ready.pop(key, None)


class AuditSession:
    """A Session in which one node computes what another did; implements session_desk.Run."""

    def __init__(self, desk: SessionDesk, link: Link) -> None:
        self.session = secrets.token_bytes(16)
        self.link = link
        self._desk = desk
        self._answers: asyncio.Queue[FromStage | None] = asyncio.Queue(256)

    @property
    def links(self) -> Collection[Link]:
        """The one to the node."""
        return (self.link,)

    def deliver(self, _link: Link, answer: FromStage) -> None:
        """Take what the node said; the surplus is lost."""
        with contextlib.suppress(asyncio.QueueFull):
            self._answers.put_nowait(answer)

    def ended(self, _link: Link) -> None:
        """Take note that its link ended."""
        with contextlib.suppress(asyncio.QueueFull):
            self._answers.put_nowait(None)

    async def _answer(self) -> FromStage:
        answer = await self._answers.get()
        if answer is None:
            raise AuditFailed("the link ended")
        if isinstance(answer, SessionFailed | SessionRefused):
            raise AuditFailed(answer.detail or answer.reason)
        return answer

    async def open(self, message: OpenSession) -> None:
        """Open it.

        Raises:
            AuditFailed: the node does not take it.
        """
        self._desk.add(self)
        try:
            await self.link.send(message)
        except ChannelClosed as error:
            raise AuditFailed("the link ended") from error
        while not isinstance(await self._answer(), SessionOpened):
            pass

    async def feed(self, pieces: Sequence[ForwardTokens]) -> None:
        """Give it the tokens, where the first Stage is audited."""
        for piece in pieces:
            await self.link.send(piece)

    async def until_ran(self, rows: int) -> None:
        """Wait until it has computed so many rows.

        Raises:
            AuditFailed: it could not.
        """
        while True:
            await self.link.send(WatchSession(self.session))
            answer = await self._answer()
            if isinstance(answer, SessionAlive) and answer.ran >= rows:
                return
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """End it."""
        self._desk.remove(self)
        with contextlib.suppress(ChannelClosed):
            await self.link.send(CloseSession(self.session))
