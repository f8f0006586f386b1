"""The replica table: one row per node, as text, and the orders it can have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import unreachable
from diffuse_tui.presenter.columns import Column
from diffuse_tui.presenter.figures import (
    NOTHING,
    age_text,
    percent,
    round_trip_text,
    size_text,
    speed_text,
)
from diffuse_tui.presenter.history import NO_SERIES, SAMPLES
from diffuse_tui.presenter.spans import Span
from diffuse_tui.presenter.sparkline import highest, sparkline
from diffuse_tui.presenter.standing import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_tui.presenter.columns import Sort
    from diffuse_tui.presenter.history import Series
    from diffuse_tui.presenter.spans import Tone

_SPARK = 8

COLUMNS: tuple[Column, ...] = (
    Column("node", 9),
    Column("slice", 7, 1),
    Column("state", 13, 2),
    Column("load", 9, 3, falls=True),
    Column("tok/s", 6, 4, right=True, falls=True),
    Column("2 min", _SPARK, 6, sortable=False),
    Column("KV free", 7, 9, right=True, falls=True),
    Column("trip", 8, 5, right=True),
    Column("met", 11, 8),
    Column("version", 8, 10),
    Column("seen", 6, 7, right=True),
)

RELAYED = "⇄"
"""Beside the round trip of a node that is met through sentinels."""

_STATE: dict[str, tuple[str, Tone]] = {
    "ready": ("●", "good"),
    "loading": ("◔", "warning"),
    "claiming": ("◌", "dim"),
    "leaving": ("◒", "dim"),
    "suspect": ("?", "warning"),
    "dead": ("✖", "bad"),
    "quarantined": ("⊘", "bad"),
    "doubtful": ("⊖", "warning"),
}


def replica_order(
    view: NetworkView, model: ModelView | None, sort: Sort | None = None
) -> list[NodeView]:
    """The nodes in the order of their rows.

    Without a `sort`, holders of `model` come in slice order, then other hosts, sentinels and
    clients. With one, equal nodes stay in that order, and those without the figure come last.
    """
    nodes = sorted(view.nodes, key=lambda node: _order(node, model))
    read = _reader(sort.column, model) if sort is not None else None
    if sort is None or read is None:
        return nodes
    known: list[tuple[_Rank, NodeView]] = []
    unknown: list[NodeView] = []
    for node in nodes:
        rank = read(node)
        if rank is None:
            unknown.append(node)
        else:
            known.append((rank, node))
    known.sort(key=lambda pair: pair[0], reverse=sort.falling)
    return [node for _, node in known] + unknown


def _order(node: NodeView, model: ModelView | None) -> tuple[int, int, int, str]:
    if model is not None and node.slice is not None and holds(node, model):
        return 0, node.slice.start, node.slice.end, node.node
    rank = {"host": 1, "sentinel": 2, "client": 3}[node.role]
    return rank, 0, 0, node.node


_Rank = tuple[float | str, ...]


def _when(known: bool, *rank: float | str) -> _Rank | None:
    return rank if known else None


def _trip_rank(node: NodeView) -> _Rank | None:
    if node.me or node.rtt_s is None:
        return (0.0,) if node.me else None
    return (node.rtt_s,) if math.isfinite(node.rtt_s) else None


_SORTS: dict[str, Callable[[NodeView], _Rank | None]] = {
    "node": lambda node: (node.node,),
    "slice": lambda node: (node.slice.start, node.slice.end) if node.slice else None,
    "load": lambda node: _when(
        node.kv_budget > 0 or node.sessions > 0,
        node.sessions,
        percent(node.kv_used, node.kv_budget),
    ),
    "tok/s": lambda node: _when(node.tokens_per_s >= 0.05, node.tokens_per_s),
    "KV free": lambda node: _when(node.kv_budget > 0, node.kv_budget - node.kv_used),
    "trip": _trip_rank,
    "met": lambda node: (met(node),),
    "version": lambda node: (node.version,),
    "seen": lambda node: (0.0 if node.me else node.last_seen_s,),
}


def _reader(column: str, model: ModelView | None) -> Callable[[NodeView], _Rank | None] | None:
    if column == "state":
        return lambda node: (node_state(node, model)[1],)
    return _SORTS.get(column)


def replica_cells(
    node: NodeView, model: ModelView | None, speeds: Series = NO_SERIES
) -> tuple[Span, ...]:
    """A node's row: one cell for each of `COLUMNS`; `speeds` is its history of tokens/s."""
    glyph, word, tone = node_state(node, model)
    gone: Tone = "dim" if node.liveness == "dead" else "plain"
    name = clean_line(node.short, 8)
    return (
        Span(f"{name}*" if node.me else name, "mine" if node.me else gone),
        Span(str(node.slice) if node.slice else NOTHING, gone if node.slice else "dim"),
        Span(f"{glyph} {word}", tone),
        Span(_load(node), gone),
        Span(speed_text(node.tokens_per_s), gone),
        Span(_spark(speeds), "accent"),
        Span(_free(node), gone),
        Span(_trip(node), gone),
        Span(met(node), "warning" if unreachable(node) else gone),
        Span(clean_line(node.version, 8), gone),
        Span(NOTHING if node.me else age_text(node.last_seen_s), gone),
    )


def _spark(speeds: Series) -> str:
    if highest(speeds.values) < 0.05:
        return ""
    return sparkline(speeds.values, _SPARK, span=SAMPLES, phase=speeds.phase)


def _trip(node: NodeView) -> str:
    trip = "local" if node.me else round_trip_text(node.rtt_s)
    return trip + (RELAYED if node.relays else " ")


def met(node: NodeView) -> str:
    """How others reach a node, in a word."""
    if node.relays:
        return "relayed"
    if node.addresses:
        return "direct"
    return "unreachable" if unreachable(node) else NOTHING


def node_state(node: NodeView, model: ModelView | None) -> tuple[str, str, Tone]:
    """A node's state as shape, word and tone; `model` is the one that is shown."""
    trouble = _trouble(node)
    if trouble is not None:
        glyph, tone = _STATE[trouble]
        return glyph, trouble, tone
    if node.state is None or node.slice is None:
        return "·", "idle" if node.role == "host" else node.role, "dim"
    glyph, tone = _STATE[node.state]
    if model is None or not holds(node, model):
        # Another model's holder: its state counts less here than that it is elsewhere.
        return glyph, "other", "dim"
    return glyph, node.state, tone


def _trouble(node: NodeView) -> str | None:
    """What matters more than what a node holds: the worst of it."""
    if node.liveness == "dead":
        return "dead"
    if node.quarantine is not None:
        return node.quarantine
    return "suspect" if node.liveness == "suspect" else None


def _load(node: NodeView) -> str:
    if node.kv_budget <= 0 and node.sessions <= 0:
        return NOTHING
    return f"{node.sessions} · {percent(node.kv_used, node.kv_budget)} %"


def _free(node: NodeView) -> str:
    return size_text(node.kv_budget - node.kv_used) if node.kv_budget > 0 else NOTHING


def counted_states(nodes: Iterable[NodeView]) -> str:
    """How many of `nodes` are in trouble, in words; empty when none is."""
    troubles = [trouble for trouble in map(_trouble, nodes) if trouble is not None]
    return " · ".join(
        f"{troubles.count(word)} {word}"
        for word in ("dead", "quarantined", "doubtful", "suspect")
        if word in troubles
    )
