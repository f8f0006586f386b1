"""The replica table: one row per node, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import unreachable
from diffuse_tui.presenter.figures import (
    NOTHING,
    age_text,
    percent,
    round_trip_text,
    speed_text,
)
from diffuse_tui.presenter.spans import Span
from diffuse_tui.presenter.standing import holds

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_tui.presenter.spans import Tone

COLUMNS: tuple[tuple[str, int], ...] = (
    ("node", 10),
    ("slice", 8),
    ("state", 11),
    ("load·kv", 10),
    ("tok/s", 6),
    ("   trip", 8),
    ("  seen", 7),
    (" met", 12),
)
"""Heading and width in cells of each column; the last is the first to be cut off."""

RELAYED = "⇄"
"""Beside the round trip of a node that is met through sentinels."""

_STATE: dict[str, tuple[str, Tone]] = {
    "ready": ("●", "good"),
    "loading": ("◔", "warning"),
    "claiming": ("◌", "dim"),
    "leaving": ("◒", "dim"),
    "suspect": ("?", "warning"),
    "dead": ("✖", "bad"),
}


class Row(NamedTuple):
    """A node's row; `key` is its full id, by which a table keeps its cursor."""

    key: str
    cells: tuple[Span, ...]


def replica_rows(view: NetworkView, model: ModelView | None) -> tuple[Row, ...]:
    """Holders of `model` in slice order, then other hosts, sentinels and clients."""
    nodes = sorted(view.nodes, key=lambda node: _order(node, model))
    return tuple(Row(node.node, _cells(node, model)) for node in nodes)


def _order(node: NodeView, model: ModelView | None) -> tuple[int, int, int, str]:
    if model is not None and node.slice is not None and holds(node, model):
        return 0, node.slice.start, node.slice.end, node.node
    rank = {"host": 1, "sentinel": 2, "client": 3}[node.role]
    return rank, 0, 0, node.node


def _cells(node: NodeView, model: ModelView | None) -> tuple[Span, ...]:
    glyph, word, tone = _state(node, model)
    gone: Tone = "dim" if node.liveness == "dead" else "plain"
    name = clean_line(node.short, 8)
    return (
        Span(f"{name}*" if node.me else name, "mine" if node.me else gone),
        Span(str(node.slice) if node.slice else NOTHING, gone if node.slice else "dim"),
        Span(f"{glyph} {word}", tone),
        Span(_load(node), gone),
        Span(speed_text(node.tokens_per_s).rjust(5), gone),
        Span(_trip(node), gone),
        Span((NOTHING if node.me else age_text(node.last_seen_s)).rjust(6), gone),
        Span(f" {_met(node)}", "warning" if unreachable(node) else gone),
    )


def _trip(node: NodeView) -> str:
    trip = "local" if node.me else round_trip_text(node.rtt_s)
    return trip.rjust(7) + (RELAYED if node.relays else "")


def _met(node: NodeView) -> str:
    """How others reach a node."""
    if node.relays:
        return "relayed"
    if node.addresses:
        return "direct"
    return "unreachable" if unreachable(node) else NOTHING


def _state(node: NodeView, model: ModelView | None) -> tuple[str, str, Tone]:
    if node.liveness != "alive":
        glyph, tone = _STATE[node.liveness]
        return glyph, node.liveness, tone
    if node.state is None or node.slice is None:
        return "·", "idle" if node.role == "host" else node.role, "dim"
    glyph, tone = _STATE[node.state]
    if model is None or not holds(node, model):
        # Another model's holder: its state counts less here than that it is elsewhere.
        return glyph, "other", "dim"
    return glyph, node.state, tone


def _load(node: NodeView) -> str:
    if node.kv_budget <= 0 and node.sessions <= 0:
        return NOTHING
    return f"{node.sessions} · {percent(node.kv_used, node.kv_budget)} %"
