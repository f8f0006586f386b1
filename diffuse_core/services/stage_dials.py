"""Links that Sessions need: to the next Stage of a Route, wherever a Client says that it is.

A dial goes on when the Session that asked for it has ended or goes another way. So how many are
under way is bounded, for each Client and in all: else one stranger has this node dial whomever it
likes, as often as it likes, and nobody else be dialled meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import short_text
from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.services.links import Link, Links

MOST_OF_ONE = 16
"""Nodes that are dialled for one Client at a time."""
MOST = 256
PATIENCE_S = 3.0
"""How long a Session waits for a dial: the Client then has another node in the place."""


class StageDials:
    """Dials for Sessions. `links` is what dials."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._under_way: set[asyncio.Task[Link]] = set()
        self._of: Counter[NodeId] = Counter()

    async def to(self, node: NodeId, addresses: Iterable[str], client: NodeId) -> Link:
        """An open link to `node`, dialled for a Session of `client` if there is none.

        It is waited for as long as a Client would wait itself; the dial goes on.

        Raises:
            Unreachable: it is not reached in time, or too much is dialled already.
        """
        if (link := self._links.find(node)) is not None:
            return link
        if self._of[client] >= MOST_OF_ONE or len(self._under_way) >= MOST:
            raise Unreachable("too many nodes are being dialled for sessions here; try again")
        task = asyncio.ensure_future(self._links.to(node, addresses))
        self._under_way.add(task)
        self._of[client] += 1

        def done(ended: asyncio.Task[Link]) -> None:
            self._under_way.discard(ended)
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]
            # Nobody may be left to look at a failure; that is no fault.
            ended.cancelled() or ended.exception()

        task.add_done_callback(done)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise Unreachable(
                f"node {short_text(node)} did not answer within {PATIENCE_S:g} s"
            ) from error

    def close(self) -> None:
        """Wait for none of them any more."""
        for task in self._under_way:
            task.cancel()
