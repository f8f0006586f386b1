"""Slices: half-open layer ranges, and the arithmetic of covering a model with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LAYERS = 1024
"""No model in the field comes near; a bound keeps hostile records small."""

LayerIndex = Annotated[int, msgspec.Meta(ge=0, le=MAX_LAYERS)]


class Slice(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The half-open range `start:end` of layers.

    Raises:
        ValueError: when the range is empty, negative or beyond MAX_LAYERS.
    """

    start: LayerIndex
    end: LayerIndex

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= MAX_LAYERS:
            raise ValueError(f"{self.start}:{self.end} is no slice")

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"

    def __len__(self) -> int:
        return self.end - self.start

    def contains(self, other: Slice) -> bool:
        """Whether every layer of `other` lies in this slice."""
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Slice) -> bool:
        """Whether at least one layer lies in both."""
        return self.start < other.end and other.start < self.end


def replicas_per_layer(total: int, slices: Iterable[Slice]) -> tuple[int, ...]:
    """How many of `slices` hold each of the layers 0..total-1; parts beyond total are ignored."""
    steps = [0] * (total + 1)
    for part in slices:
        steps[min(part.start, total)] += 1
        steps[min(part.end, total)] -= 1
    counts: list[int] = []
    running = 0
    for step in steps[:total]:
        running += step
        counts.append(running)
    return tuple(counts)


def ranges_where(flags: Iterable[bool]) -> tuple[Slice, ...]:
    """The maximal runs of true flags, as slices in ascending order."""
    found: list[Slice] = []
    start: int | None = None
    index = -1
    for index, flag in enumerate(flags):
        if flag and start is None:
            start = index
        elif not flag and start is not None:
            found.append(Slice(start, index))
            start = None
    if start is not None:
        found.append(Slice(start, index + 1))
    return tuple(found)


def gaps(total: int, slices: Iterable[Slice]) -> tuple[Slice, ...]:
    """The maximal ranges of 0..total that no slice holds."""
    return ranges_where(count == 0 for count in replicas_per_layer(total, slices))
