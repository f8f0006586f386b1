"""Nodes in quarantine, beside what a look at the network shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.cli.coverage_text import wrapped
from diffuse_core.domain.slices import gaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_core.services.quarantine import State

_SIGNS = {"quarantined": "⊘ quarantined", "doubtful": "◌ doubtful"}


def sign(state: State) -> str:
    """Shape and word."""
    return _SIGNS[state]


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
