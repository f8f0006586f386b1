"""The forecast: what a Slice changes, what more memory would, and how many Hosts are lacking.

All of it follows from `planner.plan`: a forecast promises only what a Host that plans will do.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import cover, remedy
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.planner import DEFAULT_TARGET, Plan, plan
from diffuse_core.domain.slices import Slice, ranges_where, replicas_per_layer
from diffuse_core.domain.view import CoverageState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import ModelShape

MAX_JOINS = 100
"""Further Hosts that a forecast reckons with; more are told as "more than"."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What coverage becomes when one Host more holds a Slice.

    `closes` are the ranges of it that nobody held; `raises` those that had fewer holders than
    the target; `robust` those that reach the target by it; `missing` what nobody holds then.
    """

    before: CoverageState
    after: CoverageState
    min_before: int
    min_after: int
    closes: tuple[Slice, ...]
    raises: tuple[Slice, ...]
    robust: tuple[Slice, ...]
    missing: tuple[Slice, ...]


class MoreMemory(msgspec.Struct, frozen=True):
    """What `extra` bytes beyond the capacity at hand would make of the plan."""

    extra: int
    plan: Plan
    change: Change


class MoreHosts(msgspec.Struct, frozen=True):
    """How many further Hosts of this size it takes, after this one, until the state is reached.

    None: `limit` do not reach it. `never` says that no number of them would.
    """

    covered: int | None
    robust: int | None
    never: bool
    limit: int


def change(layers: int, held: Sequence[Slice], part: Slice, target: int) -> Change:
    """What `part` changes of `layers` layers that `held` cover."""
    before = cover(layers, held, target)
    after = cover(layers, [*held, part], target)

    def inside(least: int, most: int) -> tuple[Slice, ...]:
        return ranges_where(
            least <= count <= most and part.start <= layer < part.end
            for layer, count in enumerate(before.replicas)
        )

    return Change(
        before=before.state,
        after=after.state,
        min_before=before.min_replicas,
        min_after=after.min_replicas,
        closes=inside(0, 0),
        raises=inside(0, target - 1),
        robust=inside(target - 1, target - 1),
        missing=after.missing,
    )


def more_memory(
    now: Plan,
    shape: ModelShape,
    held: Sequence[Slice],
    *,
    own: NodeId,
    max_layers: int | None = None,
    target_replicas: int = DEFAULT_TARGET,
) -> tuple[MoreMemory, ...]:
    """The least extra memory that makes a difference, and the least that makes all of it.

    A difference is an end of the model or a layer more of those with the fewest holders; all of
    it is a holder more for each of them, which changes the state wherever one Host can. Empty
    when more memory changes nothing that is lacking, or only --max-layers stands in the way.
    Where all of it is done already, what would bring the layers beside up to the target.

    Args:
        now: what this Host would take with the memory that it has.
        shape: the model's sizes.
        held: as for `planner.plan`.
        own: the Host's id, as it was for `now`.
        max_layers: most layers it takes, whatever the memory.
        target_replicas: holders per layer that the network aims at.
    """
    capacity = now.bytes["capacity"]

    def planned(size: int) -> Plan:
        return plan(
            size,
            shape,
            held,
            max_layers=max_layers,
            own=own,
            target_replicas=target_replicas,
        )

    def at(size: int) -> MoreMemory:
        made = planned(size)
        what = change(shape.layers, held, made.slice, target_replicas)
        return MoreMemory(size - capacity, made, what)

    counts = replicas_per_layer(shape.layers, held)
    lowest = min(counts)
    if lowest >= target_replicas:
        return ()
    weak = [count == lowest for count in counts]
    worth = _worth(now.slice, weak)
    sizes = [size for size in _sizes(shape, max_layers) if size > capacity]
    first = bisect_left(sizes, True, key=lambda size: _worth(planned(size).slice, weak) > worth)
    if first == len(sizes):
        tried = [at(size) for size in _sizes_beside(now.slice, shape, counts, target_replicas)]
        now_robust = _length(change(shape.layers, held, now.slice, target_replicas).robust)
        return tuple(
            one for one in tried if one.extra > 0 and _length(one.change.robust) > now_robust
        )[:1]
    found = [at(sizes[first])]
    whole = remedy(shape, held, target_replicas)
    if whole is not None and len(whole.slice) <= (max_layers or shape.layers):
        best = at(whole.bytes)
        if best.extra > found[0].extra:
            found.append(best)
    return tuple(found)


def more_hosts(
    now: Plan,
    shape: ModelShape,
    held: Sequence[Slice],
    *,
    max_layers: int | None = None,
    target_replicas: int = DEFAULT_TARGET,
    limit: int = MAX_JOINS,
) -> MoreHosts:
    """Let Hosts of the same capacity join one after another until every layer is Robust.

    Args: as for `more_memory`; `limit` is the most Hosts to try.
    """
    parts = [*held, now.slice]
    capacity = now.bytes["capacity"]
    out_of_reach = [
        layer
        for layer in range(shape.layers)
        if shape.needed_bytes(Slice(layer, layer + 1)) > capacity
    ]
    covered: int | None = None
    for joined in range(limit + 1):
        counts = replicas_per_layer(shape.layers, parts)
        lowest = min(counts)
        if covered is None and lowest > 0:
            covered = joined
        if lowest >= target_replicas:
            return MoreHosts(covered, joined, never=False, limit=limit)
        beyond = min((counts[layer] for layer in out_of_reach), default=target_replicas)
        if beyond == 0 or (covered is not None and beyond < target_replicas):
            return MoreHosts(covered, None, never=True, limit=limit)
        made = plan(
            capacity,
            shape,
            parts,
            max_layers=max_layers,
            own=to_come(joined),
            target_replicas=target_replicas,
        )
        parts.append(made.slice)
    return MoreHosts(covered, None, never=False, limit=limit)


def to_come(number: int) -> NodeId:
    """An id for a Host that is only thought of; they spread like real ones."""
    return NodeId(hashlib.sha256(b"a host to come" + number.to_bytes(4, "big")).digest())


def _worth(part: Slice, weak: Sequence[bool]) -> tuple[int, int]:
    """As the planner values a Slice: the weak ends that it adds, then the weak layers."""
    ends = (part.start == 0 and weak[0]) + (part.end == len(weak) and weak[-1])
    return ends, sum(weak[part.start : part.end])


def _length(parts: Sequence[Slice]) -> int:
    return sum(map(len, parts))


def _sizes(shape: ModelShape, max_layers: int | None) -> list[int]:
    """What every Slice needs, ascending: only there a plan can change."""
    layers, kv = shape.layers, shape.kv_reserve()
    most = min(layers, max_layers or layers)
    sums = [0, *accumulate(shape.body_bytes(Slice(n, n + 1)) + kv for n in range(layers))]
    # Where all layers are alike, one start stands for every start.
    starts = range(1, layers if shape.kind_of else min(2, layers))
    found = {
        sums[end] - sums[start]
        for start in starts
        for end in range(start + 1, min(layers - 1, start + most) + 1)
    }
    found |= {shape.needed_bytes(Slice(0, end)) for end in range(1, most + 1)}
    found |= {shape.needed_bytes(Slice(start, layers)) for start in range(layers - most, layers)}
    return sorted(found)


def _sizes_beside(part: Slice, shape: ModelShape, counts: Sequence[int], target: int) -> list[int]:
    """What `part` needs with all of the layers below the target beside it, ascending."""
    start, end = part.start, part.end
    while start > 0 and counts[start - 1] < target:
        start -= 1
    while end < shape.layers and counts[end] < target:
        end += 1
    wider = {Slice(start, part.end), Slice(part.start, end), Slice(start, end)} - {part}
    return sorted(shape.needed_bytes(one) for one in wider)
