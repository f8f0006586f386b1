"""Dialling back: a sentinel tells nodes whether they can be dialled where it sees them."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.allowances import Allowance, Allowances
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.reachability import dial_back_address, ip_of, neighbourhood
from diffuse_core.domain.relay_messages import AskDialBack, DialledBack
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Clock, Transport
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

DIAL_S = 5.0
MAX_AT_A_TIME = 16
NODE_BURST, NODE_PER_S = 4, 1 / 30
PLACE_BURST, PLACE_PER_S = 32, 1 / 4
"""For one IP, of IPv6 a /64: behind one there may be many nodes, and one that makes up many."""
TOTAL_BURST, TOTAL_PER_S = 128, 8


class DialBack:
    """Answers AskDialBack. It dials whoever asks, where they ask from, and nobody else.

    Who is not to be dialled (it asks too often, we are busy, its channel is relayed or not one
    that it dialled itself, it comes from an address that is of no use) is told no address.
    """

    def __init__(self, links: Links, transport: Transport, clock: Clock) -> None:
        """`transport` makes direct channels only."""
        self._links = links
        self._transport = transport
        self._clock = clock
        self._tasks = TaskOwner("dial back")
        self._dialling: set[NodeId] = set()
        self._nodes = Allowances(NODE_BURST, NODE_PER_S)
        self._places = Allowances(PLACE_BURST, PLACE_PER_S)
        self._total = Allowance(TOTAL_BURST, TOTAL_PER_S)
        links.handle(AskDialBack, self._on_ask)

    async def close(self) -> None:
        """Answer nobody any more."""
        self._links.unhandle(AskDialBack)
        await self._tasks.close()

    async def _on_ask(self, link: Link, message: AskDialBack, _body: memoryview) -> None:
        address = self._where(link, message.port)
        if address is None:
            log.debug("%s is not dialled back now", short_text(link.remote))
            await link.send(DialledBack(message.nonce, reached=False))
            return
        # Marked before the task runs: a node's next question may be handled first.
        self._dialling.add(link.remote)
        work = self._answer(link, message.nonce, address)
        if self._tasks.spawn(work, short_text(link.remote)) is None:
            self._dialling.discard(link.remote)

    def _where(self, link: Link, port: int) -> str | None:
        """Where to dial the other end; None when it is not to be dialled, or not now."""
        if link.dialled or link.relayed_through is not None:
            return None
        seen, address = ip_of(link.remote_address), dial_back_address(link.remote_address, port)
        if seen is None or address is None:
            return None
        if link.remote in self._dialling or len(self._dialling) >= MAX_AT_A_TIME:
            return None
        now = self._clock.monotonic()
        allowed = (
            self._nodes.spend(link.remote, 1, now)
            and self._places.spend(neighbourhood(seen), 1, now)
            and self._total.spend(1, now)
        )
        return address if allowed else None

    async def _answer(self, link: Link, nonce: int, address: str) -> None:
        try:
            reached = await self._reaches(link.remote, address)
        finally:
            self._dialling.discard(link.remote)
        with contextlib.suppress(ChannelClosed):
            await link.send(DialledBack(nonce, reached, address))

    async def _reaches(self, node: NodeId, address: str) -> bool:
        try:
            channel = await self._transport.dial(address, node, DIAL_S)
        except Unreachable as error:
            log.debug("%s cannot be dialled back: %s", short_text(node), error)
            return False
        await channel.close()
        return True
