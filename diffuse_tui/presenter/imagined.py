"""A model as it would stand if other Hosts held it: what forecasts are drawn from."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from diffuse_core.domain.coverage import COMMITTED, cover, remedy
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.view import Coming
from diffuse_tui.presenter.standing import holds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from diffuse_core.domain.shapes import ModelShape
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NodeView


class Held(NamedTuple):
    """A slice that a live node holds or will hold of the model in question."""

    node: NodeView
    part: Slice


def held(nodes: Iterable[NodeView], model: ModelView) -> tuple[Held, ...]:
    """What live nodes hold of `model`, in the order given, in whatever state."""
    return tuple(
        Held(node, node.slice)
        for node in nodes
        if node.slice is not None and holds(node, model) and node.slice.end <= model.layers
    )


def sizes(model: ModelView) -> ModelShape | None:
    """The model's sizes, where they are told and fit the rest of what is told of it."""
    shape = model.shape
    return shape if shape is not None and shape.layers == model.layers else None


def committed(parts: Iterable[Held]) -> tuple[Slice, ...]:
    """The slices that placement reckons with: claimed, loading or ready."""
    return tuple(one.part for one in parts if one.node.state in COMMITTED)


def summaries(parts: Iterable[Held]) -> tuple[HostSummary, ...]:
    """The Hosts that placement reckons with, as it sees them."""
    return tuple(
        HostSummary(node_id(one.node.node), one.part, one.node.state, one.node.capacity)
        for one in parts
        if one.node.state in COMMITTED and one.node.state is not None
    )


def node_id(text: str) -> NodeId:
    """The id that `text` shows; a stand-in for what is none, so that nothing fails by it."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    return NodeId(found if len(found) == 32 else hashlib.sha256(text.encode()).digest())


def without(parts: Iterable[Held], nodes: Collection[str]) -> tuple[Held, ...]:
    """What is left when `nodes` (full ids) are gone."""
    return tuple(one for one in parts if one.node.node not in nodes)


def moved(parts: Iterable[Held], to: Mapping[NodeId, Slice]) -> tuple[Held, ...]:
    """What is held when some nodes have gone over to other slices."""
    return tuple(Held(one.node, to.get(node_id(one.node.node), one.part)) for one in parts)


def as_held(
    model: ModelView, parts: Sequence[Held], more: Sequence[Slice] = (), *, soon: bool = False
) -> ModelView:
    """`model` as it stands when `parts` and `more` are what is held of it.

    Args:
        model: whose sizes and target count.
        parts: what nodes hold.
        more: slices of Hosts that are only thought of, ready.
        soon: count what is claimed or loading as held, as placement does.
    """
    ready = [one.part for one in parts if one.node.state == "ready"]
    slices = [*(committed(parts) if soon else ready), *more]
    coverage = cover(model.layers, slices, model.target_replicas)
    waiting = Counter(
        (one.part, one.node.state)
        for one in parts
        if not soon and (one.node.state == "claiming" or one.node.state == "loading")
    )
    shape = sizes(model)
    return replace(
        model,
        state=coverage.state,
        servable=coverage.servable,
        missing=coverage.missing,
        replicas=coverage.replicas,
        min_replicas=coverage.min_replicas,
        hosts=len(ready) + len(more),
        weakest=coverage.weakest,
        coming=tuple(
            Coming(part, state, hosts) for (part, state), hosts in sorted(waiting.items())
        ),
        remedy=shape and remedy(shape, [*committed(parts), *more], model.target_replicas),
    )
