"""A picture of the network that can be drawn: figures that contradict each other are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.slices import MAX_LAYERS

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView


def sound(view: NetworkView) -> NetworkView:
    """`view` without models whose layers cannot be told, and with every node once."""
    models = tuple(model for model in view.models if _drawable(model))
    nodes = tuple({node.node: node for node in view.nodes}.values())
    if len(models) == len(view.models) and len(nodes) == len(view.nodes):
        return view
    return msgspec.structs.replace(view, models=models, nodes=nodes)


def _drawable(model: ModelView) -> bool:
    return 1 <= model.layers <= MAX_LAYERS and len(model.replicas) == model.layers
