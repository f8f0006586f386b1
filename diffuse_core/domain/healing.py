"""Healing: which Hosts should move, because layers lack holders while others have some to spare.

Everybody who sees the same picture names the same Hosts and the same slices for them, so exactly
one moves for each part that is lacking. A move strictly improves the fewest holders of a layer,
or the number of layers that have so few, and makes no other layer as poor: so moving comes to an
end. Nobody moves whose layers no other ready Host holds.

Only below the target: to raise a minimum that is good enough is left to Hosts that join anyway.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.fitting import reach
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.planner import DEFAULT_TARGET, Plan, Wanted, plan
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from diffuse_core.domain.planner import HostSummary
    from diffuse_core.domain.shapes import ModelShape

MOVES_INTO_GAPS = 16
MOVES_TO_REINFORCE = 4
"""How many Hosts are named at once, each for another part of what is lacking."""
MOST_STANDBYS = 63
"""Hosts named besides, however long those named before them did nothing."""


class Move(msgspec.Struct, frozen=True):
    """That `node` should leave its slice for that of `plan`. `gap` says that nobody holds it."""

    node: NodeId
    plan: Plan
    gap: bool


def moves(
    hosts: Sequence[HostSummary],
    shape: ModelShape,
    *,
    target_replicas: int = DEFAULT_TARGET,
    passed: Collection[NodeId] = (),
    caps: Mapping[NodeId, int] | None = None,
    standbys: int = 0,
) -> tuple[Move, ...]:
    """Who should move where now; empty when all is well or nobody can help.

    Of the Hosts that can be spared the one comes first that adds the most ends of the model and
    layers; among equals the one whose layers have the most holders, then the one with the fewest
    layers to load, then the lowest id. What somebody claims or loads counts as held.

    Args:
        hosts: the live Hosts of the model that are claiming, loading or ready.
        shape: the model's sizes.
        target_replicas: holders per layer that the network aims at.
        passed: Hosts that were named and did not move; they are left out.
        caps: most layers of a Host, where that is known: our own.
        standbys: how many more Hosts to name for each part, last in the answer: the next in
            that order. Their claims settle which of them goes.
    """
    parts = {host.node: host.slice for host in hosts}
    ready = {host.node: host for host in hosts if host.state == "ready"}
    lowest = min(replicas_per_layer(shape.layers, parts.values()))
    if lowest >= target_replicas:
        return ()
    named: list[Move] = []
    pictures: list[dict[NodeId, Slice]] = []
    for _ in range(MOVES_INTO_GAPS if lowest == 0 else MOVES_TO_REINFORCE):
        found = _helpers(ready, parts, shape, lowest, passed, caps or {}, 1)
        if not found:
            break
        pictures.append(dict(parts))
        move = _move(found[0], parts, shape, caps or {}, target_replicas, gap=lowest == 0)
        parts[move.node] = move.plan.slice
        del ready[move.node]
        named.append(move)
    each = min(standbys, MOST_STANDBYS // max(1, len(pictures)))
    for picture in pictures if each else ():
        helpers = _helpers(ready, picture, shape, lowest, passed, caps or {}, len(ready))
        for host in _together(helpers, ready, shape.layers)[:each]:
            del ready[host.node]
            named.append(_move(host, picture, shape, caps or {}, target_replicas, gap=lowest == 0))
    return tuple(named)


def _together(
    helpers: Sequence[HostSummary], ready: Mapping[NodeId, HostSummary], total: int
) -> list[HostSummary]:
    """Those that can all go at once: while they claim they do not vouch for each other."""
    serving = list(replicas_per_layer(total, (host.slice for host in ready.values())))
    found = []
    for host in helpers:
        layers = range(host.slice.start, host.slice.end)
        if min(serving[layer] for layer in layers) > 1:
            found.append(host)
            for layer in layers:
                serving[layer] -= 1
    return found


def spared(own: NodeId, part: Slice, hosts: Sequence[HostSummary], total: int) -> bool:
    """Whether every layer of `part` is held by a ready Host other than `own`."""
    others = (host.slice for host in hosts if host.state == "ready" and host.node != own)
    return min(replicas_per_layer(total, others)[part.start : part.end]) > 0


def _spare(
    ready: Mapping[NodeId, HostSummary],
    counts: Sequence[int],
    serving: Sequence[int],
    lowest: int,
    passed: Collection[NodeId],
) -> Iterator[tuple[int, HostSummary]]:
    """Hosts that can go, each with the fewest holders that a layer of it has."""
    for host in ready.values():
        start, end = host.slice.start, host.slice.end
        fewest = min(counts[start:end])
        if fewest > lowest + 1 and min(serving[start:end]) > 1 and host.node not in passed:
            yield fewest, host


def _move(
    host: HostSummary,
    parts: Mapping[NodeId, Slice],
    shape: ModelShape,
    caps: Mapping[NodeId, int],
    target: int,
    *,
    gap: bool,
) -> Move:
    """Where `host` goes when the others hold their `parts`."""
    chosen = plan(
        host.capacity,
        shape,
        [part for node, part in parts.items() if node != host.node],
        max_layers=caps.get(host.node),
        own=host.node,
        target_replicas=target,
    )
    return Move(host.node, chosen, gap)


def _helpers(
    ready: Mapping[NodeId, HostSummary],
    parts: Mapping[NodeId, Slice],
    shape: ModelShape,
    lowest: int,
    passed: Collection[NodeId],
    caps: Mapping[NodeId, int],
    most: int,
) -> list[HostSummary]:
    """The `ready` Hosts that can go and help, the best first; none when nothing is so low."""
    counts = replicas_per_layer(shape.layers, parts.values())
    if min(counts) > lowest:
        return []
    wanted = Wanted([count == lowest for count in counts])
    ranked: list[tuple[tuple[int, int, int, int], NodeId]] = []
    serving = replicas_per_layer(shape.layers, (parts[node] for node in ready))
    for fewest, host in _spare(ready, counts, serving, lowest, passed):
        ends = reach(host.capacity, shape, caps.get(host.node))
        gain = max((wanted.worth(*fit) for fit in wanted.near(ends)), default=(0, 0))
        if gain[1] > 0:
            ranked.append(((-gain[0], -gain[1], -fewest, len(host.slice)), host.node))
    return [ready[node] for _, node in nsmallest(most, ranked)]
