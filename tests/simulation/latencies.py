"""Synthetic latencies: nodes in local networks, in towns, on continents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.domain.coordinates import Coordinate

if TYPE_CHECKING:
    import random

LAN_S = 0.0006


class Latencies:
    """Round trips in seconds between `count` nodes.

    Three continents up to 140 ms apart, three towns on each, three local networks in each; every
    local network has a line of its own of 1 to 6 ms.
    """

    def __init__(self, rng: random.Random, count: int) -> None:
        self._rng = rng
        self._lans = [tuple(rng.randrange(3) for _ in range(3)) for _ in range(count)]
        continents = [(rng.uniform(0, 0.1), rng.uniform(0, 0.1)) for _ in range(3)]
        self._towns = {
            (continent, town): (x + rng.gauss(0, 0.008), y + rng.gauss(0, 0.008))
            for continent, (x, y) in enumerate(continents)
            for town in range(3)
        }
        self._lines = {lan: rng.uniform(0.001, 0.006) for lan in sorted(set(self._lans))}

    def rtt_s(self, one: int, other: int) -> float:
        """The least that a round trip takes."""
        here, there = self._lans[one], self._lans[other]
        if here == there:
            return LAN_S
        way = math.dist(self._towns[here[:2]], self._towns[there[:2]])
        return way + self._lines[here] + self._lines[there]

    def sample_s(self, one: int, other: int) -> float:
        """What it takes this time."""
        return self.rtt_s(one, other) * (1 + abs(self._rng.gauss(0, 0.15)))


def lie(rng: random.Random) -> Coordinate:
    """Somewhere else each time, and quite sure of it."""
    axes = [rng.randint(-2_000_000, 2_000_000) for _ in range(8)]
    return Coordinate(tuple(axes), rng.randint(0, 1_000_000), 0)
