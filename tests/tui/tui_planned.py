"""Literal views of a model whose sizes are known, as the view builder makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from tui_fakes import model, network, node

from diffuse_core.domain.shapes import ModelShape
from diffuse_tui.presenter.imagined import as_held, held

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView, NodeView

MIB = 2**20


def shape(layers: int) -> ModelShape:
    """Layers of 100 MiB with 10 MiB of KV each, an embedding and a head of 200 MiB."""
    return ModelShape(
        layers=layers,
        hidden=64,
        vocab=1000,
        context=1024,
        layer_bytes=100 * MIB,
        embedding_bytes=200 * MIB,
        head_bytes=200 * MIB,
        kv_bytes=10 * MIB // 1024,
    )


def planned(*nodes: NodeView, layers: int = 30) -> NetworkView:
    """A network whose model tells its sizes, and what would mend it."""
    bare = model(nodes, layers, shape=shape(layers))
    view = network(*nodes, layers=layers)
    return replace(view, models=(as_held(bare, held(nodes, bare)),))


def thirds(*more: NodeView) -> NetworkView:
    """30 layers: 0:12 and 18:30 held twice, 12:18 once, by a node that can be spared nowhere."""
    size = 2000 * MIB
    return planned(
        node(1, (0, 18), capacity=size, sessions=2),
        node(2, (0, 12), capacity=size),
        node(3, (18, 30), capacity=size),
        node(4, (18, 30), capacity=size),
        *more,
    )


def only(view: NetworkView) -> ModelView:
    """The one model of a view."""
    (found,) = view.models
    return found
