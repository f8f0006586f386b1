"""The network's clock: what the wall clocks of many nodes, right or wrong, amount to.

Sequences begin with a time, so a node needs a notion of what lies in the future. One clock may be
wrong by hours, ours too. What counts is the third-fastest of all clocks known, ours among them (of
three or four the second, of two the faster): a lone fast one moves nothing, nor do slow ones among
others, and nodes that know the same clocks come to the same time. It is a rule against mistakes:
three nodes that lie together can move it forward, which lets in records with a later sequence than
need be, and no more.

Strangers, whose records we did not take, are free to make; their clocks can only move time
forward, never back. Nodes whose clocks are later than ours are strangers at first, since their
records lie in our future, and those whose clocks are earlier are not. Else a handful of slow
strangers would date our records into the past and cut us off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.records import MAX_SEQUENCE, first_sequence

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

FUTURE_MS = 60_000
"""How far ahead of the network's clock a sequence may begin."""
MAX_CLOCKS = 32
CLOCK_KEPT_S = 600.0
SAME_MS = 1_000
"""What delays make of a clock is no change."""
REVIEW_S = 60.0
"""At least so often it is looked whether clocks are to be forgotten."""


@dataclass(slots=True)
class _Told:
    ahead_ms: int
    at: float
    member: bool


class NetworkClock:
    """Wall time by our own clock and what others told of theirs.

    Args:
        boot_ms: our Unix time in milliseconds at the first call that has a `now`.
    """

    def __init__(self, boot_ms: int) -> None:
        self._boot_ms = boot_ms
        self._started: float | None = None
        self._told: dict[NodeId, _Told] = {}
        self._ahead_ms = 0
        self._review_at = -math.inf

    def wall_ms(self, now: float) -> int:
        """Our own wall clock, Unix time in milliseconds, at the monotonic time `now`."""
        if self._started is None:
            self._started = now
        return max(0, self._boot_ms + round((now - self._started) * 1000))

    def network_ms(self, now: float) -> int:
        """The network's clock, likewise."""
        return max(0, self.wall_ms(now) + self._ahead_ms)

    def latest(self, now: float) -> int:
        """The last sequence that does not lie in the network's future."""
        return min(MAX_SEQUENCE, first_sequence(self.network_ms(now) + FUTURE_MS + 1) - 1)

    def told(self, node: NodeId, clock_ms: int, now: float, *, member: bool) -> None:
        """`node` says that its wall clock shows `clock_ms`; `member` says whether it is one."""
        ahead_ms = clock_ms - self.wall_ms(now)
        told = self._told.get(node)
        if told is not None and abs(ahead_ms - told.ahead_ms) < SAME_MS and told.member == member:
            told.at = now
            if now < self._review_at:
                return
        else:
            self._told[node] = _Told(ahead_ms, now, member)
        self._settle(now)

    def _settle(self, now: float) -> None:
        self._review_at = now + REVIEW_S
        for node in [node for node, told in self._told.items() if now - told.at > CLOCK_KEPT_S]:
            del self._told[node]
        if len(self._told) > MAX_CLOCKS:
            # Strangers go first, and of equals the slowest: however many strangers or slow clocks
            # there are, they cannot make those forgotten that count.
            del self._told[min(self._told, key=lambda node: _weight(self._told[node]))]
        members = [0, *(told.ahead_ms for told in self._told.values() if told.member)]
        least = _third_fastest(members)
        others = [told.ahead_ms for told in self._told.values() if not told.member]
        self._ahead_ms = _third_fastest(members + [one for one in others if one >= least])


def _weight(told: _Told) -> tuple[bool, int]:
    return told.member, told.ahead_ms


def _third_fastest(ahead_ms: list[int]) -> int:
    """Or of few the middle one, the faster of two."""
    return sorted(ahead_ms, reverse=True)[min(3, (len(ahead_ms) + 1) // 2) - 1]
