"""What fits: for a Host of some capacity, how far a slice may reach from each layer."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import ModelShape

MAX_REMEMBERED = 1024
"""Capacities whose reach is kept: healing asks for every Host of a model, again and again."""


@lru_cache(maxsize=MAX_REMEMBERED)
def reach(capacity: int, shape: ModelShape, max_layers: int | None = None) -> tuple[int, ...]:
    """For each layer the furthest end of a slice that starts there; the layer where none fits.

    Args:
        capacity: bytes that weights and KV of the slice may take.
        shape: the model's sizes; embedding and head are counted where a slice has them.
        max_layers: most layers of a slice, whatever the memory.
    """
    total = shape.layers
    most = total if max_layers is None else max_layers
    grown = _grown(shape)
    found = []
    for start in range(total):
        room = capacity - (shape.embedding_bytes if start == 0 else 0)
        end = min(bisect_right(grown, grown[start] + room) - 1, start + most, total)
        if end == total and shape.needed_bytes(Slice(start, total)) > capacity:
            end -= 1
        found.append(max(start, end))
    return tuple(found)


@lru_cache(maxsize=8)
def _grown(shape: ModelShape) -> Sequence[int]:
    """Bytes of layers and their KV before each layer, and of all of them."""
    layers = range(shape.layers)
    sizes = (shape.body_bytes(Slice(at, at + 1)) + shape.kv_reserve() for at in layers)
    return tuple(accumulate(sizes, initial=0))


def reachable(ends: Sequence[int]) -> list[bool]:
    """Which layers lie in some slice that fits."""
    flags = [False] * len(ends)
    done = 0
    for start, end in enumerate(ends):
        for layer in range(max(start, done), end):
            flags[layer] = True
        done = max(done, end)
    return flags
