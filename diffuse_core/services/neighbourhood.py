"""Neighbourhood: tells discovery what is found on the LAN, and the LAN that this node is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.errors import Unreachable
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.ports import Lan, LanNode
    from diffuse_core.services.node import Node


class Neighbourhood:
    """Looks around for one node. `start` it once the node listens, `close` it before the node."""

    def __init__(self, node: Node, lan: Lan) -> None:
        self._node = node
        self._lan = lan
        self._tasks = TaskOwner("lan")

    def start(self) -> None:
        """Begin; a LAN that does not work is told and otherwise left alone."""
        self._tasks.spawn(self._run(), "look around")

    async def close(self) -> None:
        """Take back what was said on the LAN."""
        await self._tasks.close()
        await self._lan.close()

    async def _run(self) -> None:
        try:
            await self._lan.open(self._found, self._lost)
            await self._lan.announce()
        except Unreachable as error:
            self._node.note("info", f"nodes of this LAN are not found by themselves: {error}")

    def _found(self, node: LanNode) -> None:
        self._node.discovery.add("lan", node.addresses, node.node)

    def _lost(self, node: LanNode) -> None:
        self._node.discovery.withdraw("lan", node.addresses, node.node)
