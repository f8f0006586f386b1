"""What a node answers to sessions that it cannot have: at once, so that nobody waits for nothing.

Clients may come to a node that holds nothing: it is only starting, it has just moved, or its old
record is still believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.messages import (
    OpenSession,
    Reroute,
    SessionFailed,
    SessionRefused,
    WatchSession,
)
from diffuse_core.services.stage_pace import Pace

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links

TEXT = "this host holds no layers at the moment"


def turn_away(links: Links, own: NodeId, clock: Clock) -> None:
    """Refuse Sessions until others handle these messages (see StageService)."""
    pace = Pace(clock)

    async def refuse(link: Link, message: OpenSession, _body: memoryview) -> None:
        await pace.turn(link.remote)
        await link.send(SessionRefused(message.session, "slice", TEXT))

    async def deny(link: Link, message: Reroute | WatchSession, _body: memoryview) -> None:
        await pace.turn(link.remote)
        epoch = message.epoch if isinstance(message, Reroute) else 0
        await link.send(SessionFailed(message.session, own, "lost", TEXT, epoch=epoch))

    links.handle(OpenSession, refuse)
    links.handle(Reroute, deny)
    links.handle(WatchSession, deny)
