"""Weather: what becomes of a message between two nodes; everywhere, at a node, on a link."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from diffuse_core.domain.identity import NodeId

    Delay = Callable[[random.Random], float]

LONGEST_DELAY_S = 30.0


def uniform(low: float, high: float) -> Delay:
    """Any delay between the two, in seconds."""
    span = high - low
    return lambda rng: low + span * rng.random()


def lognormal(median: float, sigma: float = 0.5) -> Delay:
    """What paths through the Internet look like."""
    return lambda rng: min(LONGEST_DELAY_S, median * rng.lognormvariate(0.0, sigma))


def heavy_tail(least: float, alpha: float = 1.5) -> Delay:
    """Pareto: now and then a message takes a hundred times as long."""
    return lambda rng: min(LONGEST_DELAY_S, least * rng.paretovariate(alpha))


@dataclass
class Link:
    """One direction between two nodes, where it differs from the rest. Lossless by default."""

    loss: float = 0.0
    delay: Delay | None = None


class Weather:
    """Decides how often a message arrives, and after how long.

    `loss` is the share of messages lost, `duplicates` the share that arrives twice, `reorder` the
    share held back by up to `reorder_s` more. Losses of different causes add up. A message from
    one group to another is lost; nodes in no group reach everybody.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        loss: float = 0.0,
        delay: tuple[float, float] | Delay = (0.001, 0.01),
        duplicates: float = 0.0,
        reorder: float = 0.0,
        reorder_s: float = 0.5,
    ) -> None:
        self._rng = rng
        self.loss = loss
        self.delay = uniform(*delay) if isinstance(delay, tuple) else delay
        self.duplicates = duplicates
        self.reorder = reorder
        self.reorder_s = reorder_s
        self.cut: set[frozenset[NodeId]] = set()
        self.groups: dict[NodeId, int] = {}
        self.links: dict[tuple[NodeId, NodeId], Link] = {}
        self.deaf: dict[NodeId, float] = {}
        self.mute: dict[NodeId, float] = {}

    def part(self, *groups: Iterable[NodeId]) -> None:
        """Cut the nodes of each group off from those of the others."""
        self.groups = dict(
            itertools.chain.from_iterable(
                ((node, number) for node in group) for number, group in enumerate(groups)
            )
        )

    def heal(self) -> None:
        """Everybody reaches everybody again."""
        self.groups = {}
        self.cut.clear()

    def fate(self, sender: NodeId, receiver: NodeId) -> tuple[float, ...]:
        """The delays after which copies of a message arrive; none when it is lost."""
        delay = self.delay
        if self.groups or self.cut or self.links or self.deaf or self.mute:
            link = self.links.get((sender, receiver))
            if self._lost(sender, receiver, link):
                return ()
            if link is not None and link.delay is not None:
                delay = link.delay
        rng = self._rng
        if self.loss and rng.random() < self.loss:
            return ()
        if self.reorder and rng.random() < self.reorder:
            return (delay(rng) + rng.random() * self.reorder_s,)
        if self.duplicates and rng.random() < self.duplicates:
            return (delay(rng), delay(rng))
        return (delay(rng),)

    def _lost(self, sender: NodeId, receiver: NodeId, link: Link | None) -> bool:
        groups = self.groups
        if (
            groups
            and groups.get(sender, -1) != groups.get(receiver, -1)
            and (sender in groups and receiver in groups)
        ):
            return True
        if self.cut and frozenset((sender, receiver)) in self.cut:
            return True
        arrives = (1 - self.deaf.get(receiver, 0.0)) * (1 - self.mute.get(sender, 0.0))
        if link is not None:
            arrives *= 1 - link.loss
        return arrives < 1 and self._rng.random() >= arrives
