"""Coverage: which Hosts hold a model, and what the network lacks of it.

Only Hosts that are live and ready count. A model is its whole `ModelRef`: nodes that disagree on
any figure of it never share a Route, so a record that lies about a shape harms nobody else.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.slices import Slice, ranges_where, replicas_per_layer
from diffuse_core.domain.view import Coming, CoverageState, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.shapes import ModelShape

READY: tuple[HoldState, ...] = ("ready",)
COMMITTED: tuple[HoldState, ...] = ("claiming", "loading", "ready")
"""States that placement reckons with: what is held, or soon will be."""


class Coverage(msgspec.Struct, frozen=True):
    """Replicas per layer of one model, and what follows from them.

    `missing` are the ranges held by nobody; `weakest` is the first of the ranges with the fewest
    holders, None when every layer has the target number of them.
    """

    replicas: tuple[int, ...]
    state: CoverageState
    missing: tuple[Slice, ...]
    weakest: Slice | None

    @property
    def min_replicas(self) -> int:
        """Holders of the layer that has the fewest."""
        return min(self.replicas)

    @property
    def servable(self) -> bool:
        """Whether every layer is held."""
        return not self.missing


def cover(total: int, slices: Iterable[Slice], target: int) -> Coverage:
    """Coverage of `total` layers (at least 1) by `slices`, for `target` replicas per layer."""
    replicas = replicas_per_layer(total, slices)
    lowest = min(replicas)
    missing = ranges_where(count == 0 for count in replicas)
    weakest = None
    if lowest < target:
        weakest = ranges_where(count == lowest for count in replicas)[0]
    state: CoverageState = "Robust" if weakest is None else "Fragile"
    return Coverage(replicas, "Incomplete" if missing else state, missing, weakest)


def remedy(shape: ModelShape, slices: Iterable[Slice], target: int) -> Remedy | None:
    """The least that one more Host has to hold for every layer to have a holder more than now.

    That is the span of the layers with the fewest holders. None when each has `target` of them.
    """
    coverage = cover(shape.layers, slices, target)
    if coverage.weakest is None:
        return None
    lowest = coverage.min_replicas
    weak = [layer for layer, count in enumerate(coverage.replicas) if count == lowest]
    part = Slice(weak[0], weak[-1] + 1)
    # What the span holds besides has at least one holder more than its weakest layers.
    state: CoverageState = "Robust" if lowest + 1 >= target else "Fragile"
    return Remedy(part, shape.needed_bytes(part), state, lowest + 1)


def coming(members: Iterable[Member], model: ModelRef) -> tuple[Coming, ...]:
    """What live Hosts of `model` claim or load, by slice; equal ones counted together."""
    counts = Counter(
        (member.record.holding.slice, member.record.holding.state)
        for member in holders(members, model, ("claiming", "loading"))
        if member.record.holding is not None
    )
    return tuple(Coming(part, state, hosts) for (part, state), hosts in sorted(counts.items()))


def by_model(members: Iterable[Member]) -> dict[ModelRef, list[Member]]:
    """The members of every model that some member holds or will hold, in the order given."""
    found: dict[ModelRef, list[Member]] = {}
    for member in members:
        if member.record.holding is not None:
            found.setdefault(member.record.holding.model, []).append(member)
    return found


def models(members: Iterable[Member]) -> tuple[ModelRef, ...]:
    """Every model that some member holds or will hold, by id, then fingerprint."""
    found = {member.record.holding.model: None for member in members if member.record.holding}
    return tuple(sorted(found, key=lambda ref: (ref.id, ref.fingerprint, repr(ref.shape))))


def holders(
    members: Iterable[Member], model: ModelRef, states: Sequence[HoldState] = READY
) -> tuple[Member, ...]:
    """The live members that hold part of `model` in one of `states`, in the order given."""
    return tuple(
        member
        for member in members
        if member.live
        and member.record.holding is not None
        and member.record.holding.model == model
        and member.record.holding.state in states
    )


def held_slices(
    members: Iterable[Member], model: ModelRef, states: Sequence[HoldState] = READY
) -> tuple[Slice, ...]:
    """The slices of `holders`."""
    return tuple(
        member.record.holding.slice
        for member in holders(members, model, states)
        if member.record.holding is not None
    )


def missing_text(total: int, missing: Sequence[Slice]) -> str:
    """E.g. "layers 0:4 and 10:20 of 30 are held by no live node"."""
    names = [str(part) for part in missing]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"layers {listed} of {total} are held by no live node"
