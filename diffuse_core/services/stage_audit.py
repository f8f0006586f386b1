"""Audits at a Stage: rows it gave go to a node that computes them again; numbers are told.

A stranger cannot have rows sent to anybody: only the Client of a Session names who may take its
rows, nothing is dialled for it, and they go over a link that this node opened to ask for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import Mirror, MirrorReady, Spots, TakeMirror, TellSpots
from diffuse_core.domain.messages import ForwardHidden, RowsRun
from diffuse_core.domain.session import WINDOW_ROWS, common_name
from diffuse_core.errors import ChannelClosed, Refused
from diffuse_core.services.stage_pace import MIRROR, TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.services.links import Link, Links
    from diffuse_core.services.stage_pace import Pace
    from diffuse_core.services.stage_run import StageRun
    from diffuse_core.services.tasks import TaskOwner

AUDIT_EPOCH = 1
"""Of an audit's Session: one that sends nothing on by itself."""


class _Mirroring:
    """Rows of one Session that a node may take."""

    def __init__(self, run: StageRun, message: Mirror, audit: bytes) -> None:
        """`audit` is what Stages call the audit's Session."""
        self.run = run
        self.node = message.node
        self.rows = message.rows
        self.link: Link | None = None
        self._audit = audit
        self._ahead = 0
        self._room = asyncio.Event()

    def ran(self, rows: int) -> None:
        """The node computed some."""
        self._ahead = max(0, self._ahead - rows)
        self._room.set()

    async def send(self, link: Link) -> None:
        """Send all rows, in the pieces in which they were given, never far ahead of the node."""
        position = 0
        while position < self.rows:
            piece = self.run.outlet.kept(position, self.rows)
            if piece is None:
                return
            while self._ahead + piece.rows > WINDOW_ROWS:
                self._room.clear()
                await self._room.wait()
            self._ahead += piece.rows
            message = ForwardHidden(self._audit, piece.position, piece.rows, epoch=AUDIT_EPOCH)
            await link.send(message, piece.data)
            position = piece.end


class StageAudits:
    """What a StageService does for audits. `find` gives the run of a name between Stages."""

    def __init__(
        self,
        links: Links,
        tasks: TaskOwner,
        pace: Pace,
        find: Callable[[bytes], StageRun | None],
    ) -> None:
        self._links = links
        self._tasks = tasks
        self._pace = pace
        self._find = find
        self._mirrors: dict[bytes, _Mirroring] = {}
        links.handle(Mirror, self._on_mirror)
        links.handle(TakeMirror, self._on_take)
        links.handle(TellSpots, self._on_tell)

    def close(self) -> None:
        """Handle nothing any more."""
        self._links.unhandle(Mirror, TakeMirror, TellSpots)

    async def _on_mirror(self, link: Link, message: Mirror, _body: memoryview) -> None:
        await self._pace.turn(link.remote, MIRROR)
        run = self._find(common_name(link.remote, message.session))
        if run is None:
            return
        run.hear()
        audit = common_name(link.remote, message.audit)
        other = self._mirrors.get(audit)
        mine = other is None or other.run is run
        rows = 0
        if mine and not run.state.is_last and not run.state.audit:
            rows = min(message.rows, run.outlet.kept_rows)
            # One audit of a Session at a time: what was allowed before is not any more.
            self.forget(run)
            self._mirrors[audit] = _Mirroring(run, message, audit)
        await link.send(MirrorReady(message.audit, rows))

    def forget(self, run: StageRun) -> None:
        """Its rows may be taken by nobody any more; to be called when the Session ends as well."""
        for audit in [one for one, mirror in self._mirrors.items() if mirror.run is run]:
            del self._mirrors[audit]

    async def _on_take(self, link: Link, message: TakeMirror, _body: memoryview) -> None:
        await self._pace.turn(link.remote)
        mirror = self._mirrors.get(message.audit)
        if mirror is None or mirror.node != link.remote or mirror.link is not None:
            return
        mirror.link = link
        self._tasks.spawn(self._send(mirror, link, message.audit), "mirror")

    async def _send(self, mirror: _Mirroring, link: Link, audit: bytes) -> None:
        """Send its rows, as long as the Session they are of is held."""
        sending = asyncio.ensure_future(mirror.send(link))
        try:
            while not sending.done() and self._stands(mirror, link):
                await asyncio.wait([sending], timeout=1.0)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ChannelClosed, Refused):
                await sending
            if self._mirrors.get(audit) is mirror:
                del self._mirrors[audit]

    def _stands(self, mirror: _Mirroring, link: Link) -> bool:
        held = self._find(mirror.run.state.name) is mirror.run
        return held and not link.closed and mirror in self._mirrors.values()

    def rows_run(self, link: Link, message: RowsRun) -> None:
        """The node of an audit computed rows."""
        mirror = self._mirrors.get(message.session)
        if mirror is not None and mirror.link is link:
            mirror.ran(message.rows)

    async def _on_tell(self, link: Link, message: TellSpots, _body: memoryview) -> None:
        numbers = message.rows * max(1, len(message.spots))
        await self._pace.turn(link.remote, 1 + numbers // TOKENS)
        run = self._find(common_name(link.remote, message.session))
        if run is None:
            return
        run.hear()
        if message.given:
            body = run.outlet.spots(message.position, message.rows, message.spots)
        else:
            body = run.intake.taken.tell(message.position, message.rows)
        await link.send(Spots(message.session, message.position, message.given), body)
