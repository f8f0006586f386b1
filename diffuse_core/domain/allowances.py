"""Allowances: how much each node (or network, or other key) may cause per time.

There is one token bucket for each. Bounded: of more nodes than are kept, the one that was quiet
longest starts afresh.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_KEPT = 4096
_ROUNDING = 1e-6


class Allowance:
    """One token bucket: `burst` at once, `per_s` again each second."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._at: float | None = None

    def spend(self, amount: float, now: float) -> bool:
        """Take `amount` when there is as much; whether there was."""
        self._refill(now)
        if self._left < amount - _ROUNDING:
            return False
        self._left -= amount
        return True

    def ready_at(self, amount: float, now: float) -> float:
        """When `amount` can be spent; now, when at once."""
        self._refill(now)
        return now + max(0.0, amount - self._left) / self._per_s

    def _refill(self, now: float) -> None:
        if self._at is not None:
            gained = max(0.0, now - self._at) * self._per_s
            self._left = min(self._burst, self._left + gained)
        self._at = now


class Allowances:
    """An allowance for each of the nodes heard of lately."""

    def __init__(self, burst: float, per_s: float, most: int = MAX_KEPT) -> None:
        self._burst = burst
        self._per_s = per_s
        self._most = most
        self._kept: OrderedDict[Hashable, Allowance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def spend(self, node: Hashable, amount: float, now: float) -> bool:
        """Take `amount` of what `node` may; whether there was as much."""
        return self._of(node).spend(amount, now)

    def ready_at(self, node: Hashable, amount: float, now: float) -> float:
        """When `node` may have `amount`; now, when at once. It gets no more than the burst."""
        return self._of(node).ready_at(amount, now)

    def _of(self, node: Hashable) -> Allowance:
        allowance = self._kept.get(node)
        if allowance is None:
            allowance = self._kept[node] = Allowance(self._burst, self._per_s)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(node)
        return allowance
