"""Claims: which of several Hosts that want the same layers yields, without a word between them.

A Host announces the slice that it wants, lets the claim stand until it has reached everybody, and
then looks what others announced meanwhile. All that see the same claims decide the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from diffuse_core.domain.planner import DEFAULT_TARGET, plan
from diffuse_core.domain.slices import Slice, ranges_where, replicas_per_layer
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.planner import HostSummary
    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.shapes import ModelShape


def settle(
    own: NodeId,
    own_claim: Slice,
    others: Sequence[tuple[NodeId, Slice, HoldState]],
    *,
    counted: Sequence[Slice] | None = None,
) -> bool:
    """Whether our claim stands; the loser plans again, counting what the others hold.

    Only news since the plan matter: slices in `counted` were reckoned with. A new Host that is
    loading or ready beats a claim on the layers it is for; of two claims on the same such layers
    the lower node id wins, so of equal claims exactly one stands. The layers that a claim is for
    are those of it that had the fewest holders.

    Args:
        own: our id.
        own_claim: the slice we claim.
        others: what the other live Hosts of the model announce.
        counted: `Plan.counted` of our plan; without it, the slices of those that are ready.
    """
    if counted is None:
        counted = [part for _, part, state in others if state == "ready"]
    news = _news(others, counted)
    taken = [part for _, part, state in news if state in ("loading", "ready")]
    claims = sorted((node, part) for node, part, state in news if state == "claiming")
    for node, part in claims:
        if node < own and not _taken(_lacking(part, counted), taken):
            taken.append(part)
    return not _taken(_lacking(own_claim, counted), taken)


def foreseen(
    own: NodeId,
    others: Sequence[HostSummary],
    shape: ModelShape,
    *,
    counted: Sequence[Slice],
    target_replicas: int = DEFAULT_TARGET,
) -> list[Slice]:
    """What the others will hold once the claims of now are settled: the loser plans with it.

    Those of lower ids whose claims fall plan again as well, and before us: what they will choose
    follows from what everybody sees. So any number of Hosts that want the same at once agree in
    two rounds, instead of one a round.

    Args:
        own: our id.
        others: the other live Hosts of the model that are claiming, loading or ready.
        shape: the model's sizes.
        counted: `Plan.counted` of the plan whose claim fell.
        target_replicas: holders per layer that the network aims at.
    """
    news = _news(_told(others), counted)
    fresh = {node for node, _, state in news if state == "claiming"}
    taken = [part for _, part, state in news if state in ("loading", "ready")]
    held: list[Slice] = []
    fallen: list[HostSummary] = []
    for one in sorted(others, key=lambda one: one.node):
        if one.node in fresh and one.node < own and _taken(_lacking(one.slice, counted), taken):
            fallen.append(one)
            continue
        held.append(one.slice)
        if one.node in fresh:
            taken.append(one.slice)
    for one in fallen:
        try:
            again = plan(one.capacity, shape, held, own=one.node, target_replicas=target_replicas)
        except UsageError:
            continue
        held.append(again.slice)
    return held


def _told(others: Sequence[HostSummary]) -> list[tuple[NodeId, Slice, HoldState]]:
    return [(one.node, one.slice, one.state) for one in others]


def _news(
    others: Sequence[tuple[NodeId, Slice, HoldState]], counted: Sequence[Slice]
) -> list[tuple[NodeId, Slice, HoldState]]:
    """What others announce beyond the slices counted; settled holders are matched first."""
    known = Counter(counted)
    order: dict[HoldState, int] = {"ready": 0, "loading": 1, "claiming": 2, "leaving": 3}
    news = []
    for node, part, state in sorted(others, key=lambda other: (order[other[2]], other[0])):
        if known[part] > 0:
            known[part] -= 1
        else:
            news.append((node, part, state))
    return news


def _lacking(claim: Slice, counted: Sequence[Slice]) -> tuple[Slice, ...]:
    counts = replicas_per_layer(claim.end, counted)
    lowest = min(counts[claim.start :])
    return ranges_where(
        layer >= claim.start and count == lowest for layer, count in enumerate(counts)
    )


def _taken(lacking: Sequence[Slice], taken: Sequence[Slice]) -> bool:
    return any(one.overlaps(part) for one in lacking for part in taken)
