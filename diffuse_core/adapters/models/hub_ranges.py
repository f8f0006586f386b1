"""Arithmetic of byte ranges: half-open, whole numbers, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]
"""First byte, and the one after the last."""


def joined(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """The ranges in order, without empty ones; those at most `gap` bytes apart become one."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if found and start - found[-1][1] <= gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def missing(wanted: Iterable[Range], present: Sequence[Range]) -> list[Range]:
    """What of `wanted` is not in `present`, which is as `joined` gives it."""
    lacking: list[Range] = []
    index = 0
    for start, end in joined(wanted):
        at = start
        while index and present[index - 1][1] > at:
            index -= 1
        while index < len(present) and present[index][0] < end:
            first, last = present[index]
            if first > at:
                lacking.append((at, first))
            at = max(at, last)
            index += 1
        if at < end:
            lacking.append((at, end))
    return lacking


def cut(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """The same bytes in ranges of at most `most` bytes."""
    for start, end in ranges:
        for first in range(start, end, most):
            yield first, min(end, first + most)


def size_of(ranges: Iterable[Range]) -> int:
    """Bytes in ranges that do not overlap."""
    return sum(end - start for start, end in ranges)
