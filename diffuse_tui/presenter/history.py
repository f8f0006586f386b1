"""What each node's figures were in the last two minutes.

Views are noted as they come; their own time says where a sample belongs, no clock is read.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import NetworkView, NodeView

SAMPLES = 120
"""Samples kept of each figure."""

SAMPLE_S = 1.0
"""Seconds that one sample stands for."""

MOST_NODES = 4096
"""Whose figures are kept; of more, those that were there first."""

BRIDGED = 3
"""So many samples that no view came for are taken as unchanged: a late view is no gap."""

Figure = Literal["speed", "sessions", "kv", "rtt"]

_FIGURES: tuple[tuple[Figure, Callable[[NodeView], float]], ...] = (
    ("speed", lambda node: node.tokens_per_s),
    ("sessions", lambda node: float(node.sessions)),
    ("kv", lambda node: float(node.kv_used)),
    ("rtt", lambda node: math.nan if node.rtt_s is None else node.rtt_s),
)
_PLACE = {name: place for place, (name, _) in enumerate(_FIGURES)}
_BLANK = array("f", [math.nan]) * (SAMPLES * len(_FIGURES))


class Series(NamedTuple):
    """A figure's samples, oldest first, NaN where none is known; `phase` numbers the newest."""

    values: tuple[float, ...]
    phase: int = 0


NO_SERIES = Series(())
"""That of a node nothing is known of."""


class NodeHistory:
    """Ring buffers of every node's figures: tokens/s, sessions, KV bytes, round trip in seconds.

    A node that leaves the view is forgotten. Two kilobytes a node.
    """

    def __init__(self, most: int = MOST_NODES) -> None:
        self._most = most
        self._rings: dict[str, array[float]] = {}
        self._slot: int | None = None

    def __len__(self) -> int:
        return len(self._rings)

    def note(self, view: NetworkView) -> None:
        """Take the figures of a view; a second one of the same moment replaces the first."""
        slot = int(view.taken_at // SAMPLE_S) if math.isfinite(view.taken_at) else 0
        missed = self._missed(slot)
        self._slot = slot
        kept: dict[str, array[float]] = {}
        room = self._most - sum(node.node in self._rings for node in view.nodes)
        for node in view.nodes:
            ring = self._rings.get(node.node)
            if ring is None:
                room -= 1
                if room < 0:
                    continue
                ring = _BLANK[:]
            elif missed:
                _pass_over(ring, slot, missed)
            kept[node.node] = ring
            at = slot % SAMPLES
            for _, read in _FIGURES:
                ring[at] = _single(read(node))
                at += SAMPLES
        self._rings = kept

    def series(self, node: str, figure: Figure) -> Series:
        """The samples of one node's figure; an empty series for a node that is not known."""
        ring = self._rings.get(node)
        if ring is None or self._slot is None:
            return NO_SERIES
        start = _PLACE[figure] * SAMPLES
        split = start + self._slot % SAMPLES + 1
        return Series((*ring[split : start + SAMPLES], *ring[start:split]), self._slot)

    def _missed(self, slot: int) -> int:
        """Samples between the last one and `slot`; all of them when the clock was set back."""
        if self._slot is None or slot == self._slot:
            return 0
        between = slot - self._slot - 1
        return between if 0 <= between < SAMPLES else SAMPLES


def _single(value: float) -> float:
    """`value` as what a 4-byte float holds."""
    return value if abs(value) < 3e38 else math.nan


def _pass_over(ring: array[float], slot: int, missed: int) -> None:
    """Fill the samples before `slot` that no view came for."""
    last = slot - missed - 1
    for start in range(0, len(ring), SAMPLES):
        held = ring[start + last % SAMPLES] if missed <= BRIDGED else math.nan
        for number in range(slot - missed, slot):
            ring[start + number % SAMPLES] = held
