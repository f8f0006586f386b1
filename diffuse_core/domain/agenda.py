"""Agenda: what is due when, one deadline per key, cheap to move and to ask."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

Key = TypeVar("Key")

_SLACK = 64


class Agenda(Generic[Key]):
    """Deadlines by key, in whatever unit of time the caller counts.

    A deadline that moved leaves its old place in the heap behind, where it is passed over once
    it comes up; the heap is built anew when most of it is of that kind.
    """

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Key, at: float) -> None:
        """`key` is due at `at`, whatever was set before."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._rebuild()

    def drop(self, key: Key) -> None:
        """`key` is not due any more."""
        self._at.pop(key, None)

    def next(self) -> float:
        """The earliest deadline; inf when there is none."""
        heap = self._heap
        while heap:
            at, _, key = heap[0]
            if self._at.get(key) == at:
                return at
            heapq.heappop(heap)
        return math.inf

    def take(self, now: float) -> list[Key]:
        """Remove and return what is due, the earliest first."""
        due: list[Key] = []
        while self.next() <= now and self._heap:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due

    def shift(self, by: float) -> None:
        """Move every deadline."""
        self._at = {key: at + by for key, at in self._at.items()}
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(at, order, key) for order, (key, at) in enumerate(self._at.items())]
        self._count = len(self._heap)
        heapq.heapify(self._heap)
