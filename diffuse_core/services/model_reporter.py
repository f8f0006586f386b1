"""Tells the owner when a model is lost, whole again, or short of replicas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.model_news import ModelNews
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.services.node import Node

FIRST_S = 6.0
"""So long a node is only beginning to know the network."""
LOOK_S = 2.0
SETTLE_S = 3.0
"""What lasts shorter is no news: a Host that moves leaves no gap behind for longer."""


class ModelReporter:
    """Looks at the coverage of all models now and then, and notes what became of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._news = ModelNews(node.target_replicas, SETTLE_S)
        self._tasks = TaskOwner("model reporter")

    def start(self) -> None:
        """Begin to look, after a while."""
        self._tasks.spawn(self._watch(), "looks")

    async def close(self) -> None:
        """Look no more."""
        await self._tasks.close()

    async def _watch(self) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            now = self._node.clock.monotonic()
            for level, text in self._news.look(self._node.members(), now):
                self._node.note(level, text)
            await asyncio.sleep(LOOK_S)
