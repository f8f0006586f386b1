"""Rearranging: when no Host can be spared and yet all together could hold the model.

Slices that were chosen while few Hosts were there may overlap in a way that leaves a gap. The
model is not servable then, so Hosts that hold the only copy of a layer may move as well, several
at once, if what they move to covers all of it. Again everybody who sees the same picture finds
the same layout.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from diffuse_core.domain.fitting import reach
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.planner import HostSummary
    from diffuse_core.domain.shapes import ModelShape

MAX_ENDS = 2
"""Hosts that are tried for the first and for the last layers."""


class _Mover:
    """A Host and how many layers it can hold at the first, the last and other places."""

    def __init__(self, host: HostSummary, shape: ModelShape, cap: int | None) -> None:
        self.node = host.node
        self.slice = host.slice
        self.ends = reach(host.capacity, shape, cap)
        total = len(self.ends)
        self.first = self.ends[0]
        self.last = max(
            (total - at for at, end in enumerate(self.ends) if end == total), default=0
        )
        self.inner = max((end - at for at, end in enumerate(self.ends)), default=0)


def rearranged(
    hosts: Sequence[HostSummary],
    shape: ModelShape,
    *,
    passed: Collection[NodeId] = (),
    caps: Mapping[NodeId, int] | None = None,
) -> dict[NodeId, Slice]:
    """New slices for some Hosts, so that every layer is held; empty when there is no such layout.

    Hosts keep what they hold where that leaves enough for the rest; those that claim or load
    keep it in any case. Exact for layers of equal size: if some layout covers the model, one is
    found.

    Args:
        hosts: the live Hosts of the model that are claiming, loading or ready.
        shape: the model's sizes.
        passed: Hosts that did not move when they should have; they keep what they hold.
        caps: most layers of a Host, where that is known: our own.
    """
    movable = [one for one in hosts if one.state == "ready" and one.node not in passed]
    fixed = [one.slice for one in hosts if one.state != "ready" or one.node in passed]
    movers = [_Mover(one, shape, (caps or {}).get(one.node)) for one in movable]
    movers.sort(key=lambda one: (one.slice, one.node))
    held = [count > 0 for count in replicas_per_layer(shape.layers, fixed)]
    found: dict[NodeId, Slice] = {}
    for first, last in _ends(movers, held):
        for early in (False, True):
            layout = _lay(movers, first, last, held, spare_early=early)
            parts = [layout.get(one.node, one.slice) for one in movers]
            if not gaps(shape.layers, [*fixed, *parts]) and (
                not found or len(layout) < len(found)
            ):
                found = layout
    return found


def _ends(
    movers: Sequence[_Mover], held: Sequence[bool]
) -> Iterator[tuple[_Mover | None, _Mover | None]]:
    """Pairs of Hosts to hold the first and the last layer; None where it is held in any case."""
    total = len(held)
    firsts: Sequence[_Mover | None] = [None]
    lasts: Sequence[_Mover | None] = [None]
    if not held[0]:
        ranked = [(one.inner - one.first, one) for one in movers if one.first > 0]
        firsts = _tried(ranked, lambda one: one.slice.start == 0)
    if not held[-1]:
        ranked = [(one.inner - one.last, one) for one in movers if one.last > 0]
        lasts = _tried(ranked, lambda one: one.slice.end == total)
    for first in firsts:
        for last in lasts:
            if first is None or first is not last or first.first == total:
                yield first, last


def _tried(
    ranked: Sequence[tuple[int, _Mover]], there: Callable[[_Mover], bool]
) -> Sequence[_Mover]:
    """Some that hold the end already, and those that lose the fewest layers by holding it."""
    order = sorted(ranked, key=lambda pair: (pair[0], pair[1].node))
    cheapest = [one for _, one in order][:MAX_ENDS]
    return [one for _, one in order if there(one) and one not in cheapest][:MAX_ENDS] + cheapest


def _lay(
    movers: Sequence[_Mover],
    first: _Mover | None,
    last: _Mover | None,
    held: Sequence[bool],
    *,
    spare_early: bool,
) -> dict[NodeId, Slice]:
    """Go through the Hosts from the first layer on; each keeps its slice if that can be afforded.

    `spare_early` lets a Host keep a slice that lies beyond a gap when those after it suffice.
    """
    total = len(held)
    if first is not None and first is last:
        return {first.node: Slice(0, total)}
    order = [one for one in movers if one is not first and one is not last]
    if first is not None:
        order.insert(0, first)
    room = sum(one.inner for one in order) + (last.last if last is not None else 0)
    lacking = [*accumulate((not flag for flag in reversed(held)), initial=0)][::-1]
    layout: dict[NodeId, Slice] = {}
    at = 0
    for one in order:
        while at < total and held[at]:
            at += 1
        if at == total:
            break
        room -= one.inner
        kept = max(at, one.slice.end) if one.slice.start <= at else at
        may_stay = one.slice.start <= at or (spare_early and one is not first)
        if may_stay and lacking[kept] <= room:
            at = kept
        elif one.ends[at] > at:
            layout[one.node] = Slice(at, one.ends[at])
            at = one.ends[at]
    if last is not None and not (last.slice.end == total and last.slice.start <= at):
        layout[last.node] = Slice(total - last.last, total)
    return {
        one.node: layout[one.node]
        for one in movers
        if layout.get(one.node, one.slice) != one.slice
    }
