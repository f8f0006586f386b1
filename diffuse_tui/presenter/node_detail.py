"""All that is known of one node: lines of label and value, and graphs of its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import (
    NOTHING,
    age_text,
    counted,
    figure_text,
    percent,
    round_trip_text,
    size_text,
    speed_text,
)
from diffuse_tui.presenter.history import SAMPLES
from diffuse_tui.presenter.replicas import node_state
from diffuse_tui.presenter.spans import Line, Span
from diffuse_tui.presenter.sparkline import binned, block_rows, highest

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import ModelView, NodeView
    from diffuse_tui.presenter.history import Figure, NodeHistory, Series

_LABEL = 10
_MAX_ADDRESSES = 8
_TWO_COLUMNS = 64
"""Cells from which on two graphs stand side by side."""
_LOWEST, _HIGHEST = 2, 8
"""Rows of a graph."""

_QUARANTINE = {
    "quarantined": "quarantined: an audit found that what it computed is wrong; it is not used",
    "doubtful": "doubtful since an audit: avoided while there are others",
}


def node_lines(node: NodeView, model: ModelView | None = None) -> tuple[Line, ...]:
    """Identity and addresses, what it holds, and how busy it is."""
    glyph, word, tone = node_state(node, model)
    facts = [
        ("id", Span(clean_line(node.node, 64), "strong")),
        ("role", Span(f"{node.role}{' · this node' if node.me else ''} · {node.liveness}")),
        ("state", Span(f"{glyph} {word}", tone)),
        ("version", Span(clean_line(node.version, 40))),
        ("address", Span(_addresses(node))),
    ]
    if node.relays:
        facts.append(("relayed", Span(_sentinels(node))))
    facts += [
        ("holds", Span(_held(node))),
        ("weights", Span(clean_line(node.fingerprint, 64) if node.fingerprint else NOTHING)),
        ("capacity", Span(size_text(node.capacity) if node.capacity else NOTHING)),
        ("KV", Span(_kv(node))),
        ("speed", Span(f"{speed_text(node.tokens_per_s)} tokens/s")),
    ]
    if node.quarantine is not None:
        facts.append(("audits", Span(_QUARANTINE[node.quarantine], tone)))
    if not node.me:
        seen = age_text(node.last_seen_s)
        facts += [
            ("trip", Span(_trip(node))),
            ("seen", Span(seen if seen == "now" else f"{seen} ago")),
        ]
    return tuple((Span(label.ljust(_LABEL), "label"), value) for label, value in facts)


def _trip(node: NodeView) -> str:
    if node.rtt_s is None and node.distance_s is not None:
        return f"about {round_trip_text(node.distance_s)}, by its place on the network"
    return round_trip_text(node.rtt_s)


def _addresses(node: NodeView) -> str:
    """Where it is dialled."""
    return _some(tuple(clean_line(address, 80) for address in node.addresses)) or (
        f"{NOTHING} (cannot be dialled)" if node.relays else f"{NOTHING} (takes no connections)"
    )


def _sentinels(node: NodeView) -> str:
    """Through whom it is met by those who cannot dial it."""
    return "via sentinel " + _some(tuple(clean_line(relay[:8]) for relay in node.relays))


def _some(texts: tuple[str, ...]) -> str:
    rest = len(texts) - _MAX_ADDRESSES
    return ", ".join((*texts[:_MAX_ADDRESSES], *([f"and {rest} more"] if rest > 0 else [])))


def _held(node: NodeView) -> str:
    if node.slice is None:
        return "no slice"
    contract = f" · {node.contract}" if node.contract else ""
    state = f" · {node.state}" if node.state else ""
    return f"layers {node.slice} of {clean_line(node.model or '', 60)}{contract}{state}"


def _kv(node: NodeView) -> str:
    if node.kv_budget <= 0:
        return NOTHING
    used = f"{size_text(node.kv_used)} of {size_text(node.kv_budget)}"
    return (
        f"{used} ({percent(node.kv_used, node.kv_budget)} %) · {counted(node.sessions, 'session')}"
    )


# --- history --------------------------------------------------------------------------------

_GRAPHS: tuple[tuple[Figure, str, Callable[[float], str]], ...] = (
    ("speed", "tokens/s", speed_text),
    ("sessions", "sessions", figure_text),
    ("kv", "KV used", size_text),
    ("rtt", "round trip", round_trip_text),
)


def history_lines(node: NodeView, history: NodeHistory, width: int, room: int) -> tuple[Line, ...]:
    """Graphs of the last two minutes, side by side where `width` cells have room for two.

    They are as high as fits into `room` lines, within reason. The top of a graph is its largest
    bar, for KV the node's budget; a bar is the mean of the samples in it.
    """
    across = 2 if width >= _TWO_COLUMNS else 1
    cells = (width - (across - 1) * 2) // across
    height = max(_LOWEST, min(_HIGHEST, (room - 1) * across // len(_GRAPHS) - 1))
    graphs = [
        _graph(history.series(node.node, figure), name, text, cells, height, _top(node, figure))
        for figure, name, text in _GRAPHS
        if not (figure == "rtt" and node.me)
    ]
    lines: list[Line] = [(Span("the last two minutes", "label"),)]
    for first in range(0, len(graphs), across):
        beside = graphs[first : first + across]
        for parts in zip(*beside, strict=True):
            line: list[Span] = []
            for part in parts:
                line += [Span("  "), *part] if line else part
            lines.append(tuple(line))
    return tuple(lines)


def _top(node: NodeView, figure: Figure) -> float | None:
    return float(node.kv_budget) if figure == "kv" and node.kv_budget > 0 else None


def _graph(
    series: Series,
    name: str,
    text: Callable[[float], str],
    width: int,
    height: int,
    top: float | None,
) -> list[Line]:
    """A heading of `width` cells and `height` rows below it."""
    groups = binned(series.values, width, span=SAMPLES, phase=series.phase)
    most = highest(groups) if top is None else top
    known = [value for value in series.values if math.isfinite(value)]
    now = text(known[-1]) if known else NOTHING
    scale = f"top {text(most)}" if most > 0 else ""
    head = f"{name} {now}"
    blanks = max(1, width - len(head) - len(scale))
    rows = block_rows(groups, width, height, top=most)
    heading: Line = (
        Span(name, "label"),
        Span(f" {now}"),
        Span(" " * blanks),
        Span(scale[: max(0, width - len(head) - 1)], "dim"),
    )
    return [heading, *((Span(row, "accent"),) for row in rows)]
