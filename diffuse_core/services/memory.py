"""Memory: keeps on disk which nodes were seen alive, and gives them to discovery at the start."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.known_nodes import (
    KnownNode,
    read_known,
    remember,
    usefulness,
    write_known,
)
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.ports import Storage
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

FIRST_SAVE_S = 5.0
SAVE_S = 60.0


def file_name(tag: bytes) -> str:
    """What the list of a network is called; each has its own, by the tag of its name."""
    return f"nodes-{tag.hex()[:16]}.json"


def recall(storage: Storage, name: str, wall: float) -> tuple[KnownNode, ...]:
    """The nodes remembered, the most useful first; a damaged list counts as none."""
    try:
        data = storage.read(name)
        known = () if data is None else read_known(data)
    except (UsageError, ValueError) as error:
        log.warning(
            "the list of remembered nodes %s is of no use, a new one begins: %s", name, error
        )
        return ()
    return tuple(sorted(known, key=lambda node: usefulness(node, wall), reverse=True))


class Memory:
    """Remembers for one node. `start` it once the node has started, `close` it before the node."""

    def __init__(self, node: Node, storage: Storage, name: str) -> None:
        self._node = node
        self._storage = storage
        self._name = name
        self._known: tuple[KnownNode, ...] = ()
        self._saved: tuple[KnownNode, ...] = ()

    def start(self) -> int:
        """Give discovery what is remembered, and begin to watch; how many nodes that are."""
        wall = self._node.clock.wall()
        self._known = self._saved = recall(self._storage, self._name, wall)
        for known in self._known:
            self._node.discovery.add("remembered", known.addresses, known.id)
        self._node.tasks.spawn(self._run(), "memory")
        return len(self._known)

    async def close(self) -> None:
        """Save once more."""
        self._update()
        await self._save()

    async def _run(self) -> None:
        pause = FIRST_SAVE_S
        while True:
            await asyncio.sleep(pause)
            pause = SAVE_S if self._update() else FIRST_SAVE_S
            await self._save()

    def _update(self) -> bool:
        """Take in who is alive; whether anybody is."""
        discovery, members = self._node.discovery, self._node.members()
        kept = [node for node in self._known if not discovery.given_up(node.id)]
        before = {node.id for node in kept}
        self._known = remember(
            kept, members, discovery.reached(), self._node.id, self._node.clock.wall()
        )
        for node in self._known:
            if node.id not in before:
                discovery.add("remembered", node.addresses, node.id)
        return len(members) > 1

    async def _save(self) -> None:
        if self._known == self._saved:
            return
        known = self._known
        try:
            await asyncio.to_thread(self._storage.write, self._name, write_known(known))
        except UsageError as error:
            log.warning("cannot remember the nodes of the network: %s", error)
        self._saved = known
