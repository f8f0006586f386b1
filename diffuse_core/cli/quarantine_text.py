"""Nodes in quarantine, beside what a look at the network shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.cli.coverage_text import wrapped
from diffuse_core.domain.identity import node_text
from diffuse_core.domain.slices import gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_core.services.quarantine import QuarantineBook

    State = Literal["quarantined", "doubtful"]

_SIGNS = {"quarantined": "⊘ quarantined", "doubtful": "◌ doubtful"}


def standings(book: QuarantineBook) -> dict[str, State]:
    """How nodes stand, by their ids; those that audits never found out are not among them."""
    found: dict[str, State] = {node_text(node): "doubtful" for node in book.doubtful()}
    return found | {node_text(node): "quarantined" for node in book.barred()}


def sign(state: State) -> str:
    """Shape and word."""
    return _SIGNS[state]


def marked(view: NetworkView, found: Mapping[str, State]) -> NetworkView:
    """The picture with how its nodes stand with whoever looks."""
    nodes = tuple(
        msgspec.structs.replace(node, quarantine=found.get(node.node)) for node in view.nodes
    )
    return msgspec.structs.replace(view, nodes=nodes)


def quarantine_lines(view: NetworkView, models: Iterable[ModelView]) -> list[str]:
    """Which hosts are not used from here, and what this machine cannot ask without them."""
    lines: list[str] = []
    for model in models:
        hosts = [node for node in view.nodes if _holds(node, model)]
        barred = [node for node in hosts if node.quarantine == "quarantined"]
        doubtful = [node for node in hosts if node.quarantine == "doubtful"]
        if barred:
            names = _names(barred)
            text = f"{sign('quarantined')} here by audits, not used for {model.id}: {names}"
            if lacking := _lacking(model, hosts):
                text += f"; nobody else holds {lacking}: it cannot be asked from here"
            lines += wrapped(f"{text} (`diffuse quarantine list`)", "")
        if doubtful:
            text = f"{sign('doubtful')} since an audit, avoided for {model.id}: {_names(doubtful)}"
            lines += wrapped(text, "")
    return lines


def _holds(node: NodeView, model: ModelView) -> bool:
    same = (node.model, node.fingerprint) == (model.id, model.fingerprint)
    return same and node.liveness != "dead" and node.slice is not None


def _lacking(model: ModelView, hosts: list[NodeView]) -> str:
    """Layers that others hold, and nobody that is used from here."""
    used = [
        node.slice
        for node in hosts
        if node.slice is not None and node.state == "ready" and node.quarantine != "quarantined"
    ]
    lost = [gap for gap in gaps(model.layers, used) if gap not in model.missing]
    return ", ".join(map(str, lost))


def _names(nodes: list[NodeView]) -> str:
    return ", ".join(f"{node.short} ({node.slice})" for node in nodes)
