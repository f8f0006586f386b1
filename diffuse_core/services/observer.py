"""The observer: a short-lived look at the network, without becoming part of it.

Commands such as `models` and `query` dial one known node, pull all it knows and use that picture.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import Pull, Push, Rumour
from diffuse_core.domain.observe import members_from_push, network_view
from diffuse_core.domain.records import record_node
from diffuse_core.errors import Unreachable
from diffuse_core.services.links import Link, Links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import SignedRecord
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Clock, Transport

PULL_TIMEOUT_S = 10.0
MAX_RECORDS = 4096


class Observer:
    """A client that knows what the node it asked knew. `look` again to refresh."""

    def __init__(self, transport: Transport, clock: Clock, target_replicas: int = 2) -> None:
        self.clock = clock
        self.links = Links(transport)
        self._target = target_replicas
        self._members: dict[NodeId, Member] = {}
        self._records: list[SignedRecord] = []
        self._rumours: list[Rumour] = []
        self._complete = asyncio.Event()
        self.links.handle(Push, self._on_push)

    async def look(self, bootstrap: Sequence[str]) -> None:
        """Pull from the first of `bootstrap` that answers.

        Raises:
            Unreachable: none of them did; the message tells why for each.
        """
        problems: list[str] = []
        for address in bootstrap:
            self._records, self._rumours = [], []
            self._complete.clear()
            try:
                link = await self.links.dial(address)
                await link.send(Pull())
                async with asyncio.timeout(PULL_TIMEOUT_S):
                    await self._complete.wait()
            except Unreachable as error:
                problems.append(str(error))
                continue
            except TimeoutError:
                problems.append(f"{address} did not tell what it knows in {PULL_TIMEOUT_S:.0f} s")
                continue
            members = members_from_push(self._records, self._rumours, self.clock.monotonic())
            self._members = {record_node(member.record): member for member in members}
            return
        raise Unreachable(
            "no node of the network could be reached: " + "; ".join(problems) + ". "
            "Start one with `diffuse sentinel` or `diffuse host`, or give --bootstrap HOST:PORT"
        )

    async def _on_push(self, _link: Link, message: Push, _body: memoryview) -> None:
        if len(self._records) < MAX_RECORDS:
            self._records.extend(message.records)
            self._rumours.extend(message.rumours)
        if message.last:
            self._complete.set()

    def members(self) -> tuple[Member, ...]:
        """The nodes that were known."""
        return tuple(self._members.values())

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled."""
        member = self._members.get(node)
        return member.record.addresses if member else ()

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
