"""Stand-in until the router fills gaps itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.router import Candidate, choose_route
from diffuse_core.domain.slices import Slice, gaps

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence, Set

    from diffuse_core.domain.identity import NodeId


def refill_route(
    total: int,
    candidates: Sequence[Candidate],
    avoid: Set[NodeId],
    rng: random.Random,
    kept: Sequence[tuple[NodeId, Slice]],
) -> list[tuple[NodeId, Slice]]:
    taken = set(avoid) | {node for node, _ in kept}
    route = list(kept)
    for gap in gaps(total, [part for _, part in kept]):
        clipped = [
            msgspec.structs.replace(
                one,
                slice=Slice(
                    max(one.slice.start, gap.start) - gap.start,
                    min(one.slice.end, gap.end) - gap.start,
                ),
            )
            for one in candidates
            if one.slice.overlaps(gap)
        ]
        found = choose_route(len(gap), clipped, taken, rng)
        taken |= {node for node, _ in found}
        route += [(n, Slice(p.start + gap.start, p.end + gap.start)) for n, p in found]
    return sorted(route, key=lambda stage: stage[1].start)
