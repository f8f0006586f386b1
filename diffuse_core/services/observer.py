"""The observer: a short-lived look at the network, without becoming part of it.

Commands such as `models` and `query` dial one known node, pull all it knows and use that picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.allow_list import without_strangers
from diffuse_core.domain.exchange import BUSY
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.messages import Pull, Push, Rumour
from diffuse_core.domain.observe import members_from_push, network_view
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.records import record_node
from diffuse_core.errors import Refused, Unreachable
from diffuse_core.services.dialling import Place, dial_any
from diffuse_core.services.links import Link, Links
from diffuse_core.services.places import sentinel_addresses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import SignedRecord
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Clock, Transport

log = logging.getLogger(__name__)

PULL_TIMEOUT_S = 10.0
MAX_RECORDS = 4096
MAX_PROBLEMS = 4
BUSY_PAUSE_S = 3.0
"""Before those are asked again that were too busy to answer; once."""
FRESH_S = 1.0
"""A picture no older than that is not pulled again."""
AGAIN_S = 2.0
MAX_AGAIN = 3


class Observer:
    """A client that knows what the node it asked knew. `look` again to refresh.

    With `allowed` it asks these nodes only, and sees no others.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        target_replicas: int = 2,
        allowed: frozenset[NodeId] | None = None,
        own: NodeId | None = None,
    ) -> None:
        """`own` is who it is for those that it talks to."""
        self.own = own
        self.clock = clock
        self.links = Links(transport, allowed=allowed)
        self._allowed = allowed
        self._target = target_replicas
        self._members: dict[NodeId, Member] = {}
        self._records: list[SignedRecord] = []
        self._rumours: list[Rumour] = []
        self._asked: Link | None = None
        self._over = asyncio.Event()
        self._whole = False
        self._busy = False
        self._refusal = ""
        self._pulled_at = -math.inf
        self._pulled_bytes = 0
        self._pulling = asyncio.Lock()
        self.links.handle(Push, self._on_push)
        self.links.handle(NotAllowed, self._on_not_allowed)
        self.links.on_ended(self._on_ended)

    async def look(self, bootstrap: Sequence[str | Place]) -> None:
        """Pull from the first of `bootstrap` that answers; if it is too busy now, once more.

        Raises:
            Unreachable: none of them did; the message tells why for each.
            Refused: those that did talk to the nodes of their allow lists only.
        """
        places = [Place(place) if isinstance(place, str) else place for place in bootstrap]
        problems: list[str] = []
        busy: list[Link] = []
        async with aclosing(dial_any(self.links, places, problems)) as links:
            async for link in links:
                problem = await self._pull(link)
                if problem is None:
                    return
                problems.append(problem)
                if self._busy:
                    busy.append(link)
        if busy:
            await asyncio.sleep(BUSY_PAUSE_S)
        for link in busy:
            if await self._pull(link) is None:
                return
        if self._refusal:
            raise Refused(self._refusal, "owner")
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
        raise Unreachable(
            "no node of the network could be reached: " + "; ".join(problems) + ". "
            "Start one with `diffuse sentinel` or `diffuse host`, or give --bootstrap HOST:PORT"
        )

    async def look_again(self) -> None:
        """Pull once more, from nodes there is a link to or whom the picture shows; or keep it."""
        async with self._pulling:
            if self.clock.monotonic() - self._pulled_at < FRESH_S:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._pull_again()

    @property
    def pulled_at(self) -> float:
        """When the picture was pulled, in the clock's monotonic seconds."""
        return self._pulled_at

    @property
    def pulled_bytes(self) -> int:
        """About how large the picture was on the wire."""
        return self._pulled_bytes

    async def _pull_again(self) -> None:
        linked = self.links.linked()
        open_links = [links[-1] for links in linked.values() if not links[-1].silent]
        # Who told us before has the best right to be asked.
        open_links.sort(key=lambda link: link is not self._asked)
        for link in open_links[:MAX_AGAIN]:
            if await self._pull(link) is None:
                return
        places = [
            Place(address, node)
            # Last those that are linked with us, and silent.
            for node in sorted(self._members, key=lambda node: node in linked)
            if self.links.find(node) is None
            for address in self.addresses(node)
        ]
        async with aclosing(dial_any(self.links, places, [])) as links:
            async for link in links:
                if await self._pull(link) is None:
                    return

    async def _pull(self, link: Link) -> str | None:
        """Take over what a node knows; what went wrong, if something did."""
        self._records, self._rumours = [], []
        self._asked, self._whole, self._busy = link, False, False
        self._over.clear()
        where = link.remote_address
        try:
            await link.send(Pull())
            async with asyncio.timeout(PULL_TIMEOUT_S):
                await self._over.wait()
        except Unreachable as error:
            return str(error)
        except TimeoutError:
            return f"{where} did not tell what it knows in {PULL_TIMEOUT_S:.0f} s"
        if self._busy:
            return f"{where} is too busy to tell what it knows; ask again in a few seconds"
        if not self._whole:
            return f"{where} hung up before it told what it knows"
        members = members_from_push(self._records, self._rumours, self.clock.monotonic())
        self._members = {record_node(member.record): member for member in members}
        self._pulled_at = self.clock.monotonic()
        self._pulled_bytes = sum(len(one.payload) + len(one.signature) for one in self._records)
        return None

    async def _on_push(self, link: Link, message: Push, _body: memoryview) -> None:
        if link is not self._asked:
            return
        if self._allowed is not None:
            permitted = without_strangers(message, self._allowed)
            if not isinstance(permitted, Push):
                return
            message = permitted
        if len(self._records) < MAX_RECORDS:
            self._records.extend(message.records)
            self._rumours.extend(message.rumours)
        if message.last:
            self._whole = True
            self._over.set()

    async def _on_not_allowed(self, link: Link, message: NotAllowed, _body: memoryview) -> None:
        if message == BUSY:
            if link is self._asked:
                self._busy = True
                self._over.set()
            return
        self._refusal = (
            f"node {short_text(link.remote)} at {link.remote_address} talks to the nodes on its "
            "allow list only"
        )
        if self._members:
            log.warning("%s", self._refusal)

    def _on_ended(self, link: Link) -> None:
        if link is self._asked:
            self._over.set()

    def members(self) -> tuple[Member, ...]:
        """The nodes that were known."""
        return tuple(self._members.values())

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled."""
        member = self._members.get(node)
        return member.record.addresses if member else ()

    def sentinel_addresses(self, node: NodeId) -> tuple[str, ...] | None:
        """Where a live Sentinel says it can be dialled; () when `node` is none.

        None as long as nobody is known.
        """
        return sentinel_addresses(self.members(), None, node)

    def suspect(self, node: NodeId) -> None:
        """Leave out a node that did not answer."""
        self._members.pop(node, None)

    def view(self) -> NetworkView:
        """The picture that was pulled."""
        return network_view(
            self.members(),
            own=None,
            now=self.clock.monotonic(),
            wall=self.clock.wall(),
            target_replicas=self._target,
        )

    async def close(self) -> None:
        """Close every link."""
        await self.links.close()
