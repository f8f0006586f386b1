"""What any assignment of Hosts to slices could reach at best, and what some would reach.

An upper bound of the holders that the poorest layer can have: by linear duality, for any weights
of the layers that add up to one it is at most the sum, over the Hosts, of the weight of the
heaviest slice that each can hold. Weights that are larger at the ends of the model and equal
between, and then multiplied up where holders are lacking, make it tight.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.domain.fitting import reach

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import ModelShape

STEPS = 60


def lognormal_capacities(
    rng: random.Random, count: int, shape: ModelShape, *, median: float, sigma: float
) -> list[int]:
    """Capacities in bytes: `median` layers with their KV, times a lognormal factor; one at least.

    Those that would hold no layer are drawn again.
    """
    layer = shape.layer_bytes + shape.kv_reserve()
    found: list[int] = []
    while len(found) < count:
        layers = median * math.exp(sigma * rng.gauss(0.0, 1.0))
        if layers >= 1:
            found.append(int(layer * layers))
    return found


def most_replicas(capacities: Sequence[int], shape: ModelShape) -> int:
    """No assignment gives every layer more holders than this."""
    total = shape.layers
    ends = np.array([reach(capacity, shape) for capacity in capacities])
    starts = np.arange(total)
    hosts = np.arange(len(capacities))

    def weigh(weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The bound with these weights, and the holders of each layer when all take their best."""
        sums = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
        gains = sums[ends] - sums[starts][None, :]
        chosen = gains.argmax(axis=1)
        steps = np.zeros(total + 1)
        np.add.at(steps, chosen, 1)
        np.add.at(steps, ends[hosts, chosen], -1)
        return float(gains[hosts, chosen].sum()), np.cumsum(steps)[:total]

    best, tightest = math.inf, np.ones(total)
    for heavy in np.arange(1.0, total, 0.25):
        weights = np.ones(total)
        weights[[0, -1]] = heavy
        bound, _ = weigh(weights)
        if bound < best:
            best, tightest = bound, weights
    weights = tightest
    for step in range(STEPS):
        bound, counts = weigh(weights)
        best = min(best, bound)
        pull = np.exp(-0.2 * (counts / counts.mean() - 1) / math.sqrt(1 + step))
        weights = np.maximum(weights * pull, 1e-9)
    return math.floor(best + 1e-9)


def can_cover(capacities: Sequence[int], shape: ModelShape) -> bool:
    """Whether some assignment of these Hosts holds every layer; exact for layers of equal size."""
    total = shape.layers
    rooms = []
    for number, capacity in enumerate(capacities):
        ends = reach(capacity, shape)
        inner = max(end - start for start, end in enumerate(ends))
        last = max((total - at for at, end in enumerate(ends) if end == total), default=0)
        rooms.append((number, inner, ends[0], last))
    if any(first == total for _, _, first, _ in rooms):
        return True
    room = sum(inner for _, inner, _, _ in rooms)
    firsts = sorted((inner - first, number) for number, inner, first, _ in rooms if first)[:2]
    lasts = sorted((inner - last, number) for number, inner, _, last in rooms if last)[:2]
    return any(
        one != other and room - lost - lost_too >= total
        for lost, one in firsts
        for lost_too, other in lasts
    )
