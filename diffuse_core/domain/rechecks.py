"""Rechecks: nodes to be probed out of turn, because somebody may be wrong about them.

Knocks at the dead: a partition may be over. There are few of them, so that all nodes together
knock at a dead one about once per second, and more, up to a bound, as soon as one turns out to
live. Doubts about the living: somebody holds them for dead in a digest, perhaps out of a
partition, so it is no testimony; a few per second are looked at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.domain.pool import Pool

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.directory import Directory
    from diffuse_core.domain.identity import NodeId

KNOCK_S = (3.0, 60.0)
KNOCK_AGAIN_S = 1.0
KNOCKS = (2, 16)
DOUBT_S = 1.0
DOUBTS = 4
MAX_POOL = 256


class Rechecks:
    """Whom to probe, when."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._hopes = Pool()
        self._doubts = Pool()
        self._knock_at = math.inf
        self._doubt_at = math.inf
        self._knocks = KNOCKS[0]
        self._revived = 0

    def follow(self, directory: Directory, live: int, now: float) -> None:
        """Plan the next knock; soon, when a dead node came back: others may, too."""
        dead = directory.dead
        if directory.revived > self._revived:
            self._revived = directory.revived
            self._knocks = min(2 * self._knocks, KNOCKS[1])
            self._knock_at = min(self._knock_at, now + KNOCK_AGAIN_S)
        elif dead and self._knock_at == math.inf:
            self._knock_at = now + self._pause(live, len(dead))

    def hope(self, node: NodeId) -> None:
        """A member holds `node`, which is dead to us, for alive."""
        if len(self._hopes) < MAX_POOL:
            self._hopes.add(node)

    def doubt(self, node: NodeId, now: float) -> None:
        """A member holds `node`, which is alive to us, for dead."""
        if len(self._doubts) < MAX_POOL:
            self._doubts.add(node)
            self._doubt_at = min(self._doubt_at, now + DOUBT_S)

    def next_deadline(self) -> float:
        """When there is somebody to look at, monotonic; inf when never."""
        return min(self._knock_at, self._doubt_at)

    def doubted(self, now: float) -> list[NodeId]:
        """Those in doubt that are to be probed now."""
        if now < self._doubt_at:
            return []
        taken = self._take(self._doubts, DOUBTS)
        self._doubt_at = now + DOUBT_S if self._doubts else math.inf
        return taken

    def knock(self, dead: Pool, live: int, now: float) -> list[NodeId]:
        """Those of the `dead` that are to be pinged now."""
        if now < self._knock_at:
            return []
        hopeful = [node for node in self._take(self._hopes, self._knocks) if node in dead]
        others = dead.sample(self._rng, self._knocks - len(hopeful))
        self._knock_at = now + self._pause(live, len(dead)) if dead else math.inf
        self._knocks = max(KNOCKS[0], self._knocks // 2)
        return [*hopeful, *(node for node in others if node not in hopeful)]

    def _take(self, pool: Pool, count: int) -> list[NodeId]:
        taken = pool.sample(self._rng, count)
        for node in taken:
            pool.discard(node)
        return taken

    def _pause(self, live: int, dead: int) -> float:
        pause = max(KNOCK_S[0], min(KNOCK_S[1], live / max(1, dead)))
        return pause * (0.75 + self._rng.random() / 2)
