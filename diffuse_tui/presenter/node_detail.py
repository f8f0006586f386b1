"""All that is known of one node, as lines of label and value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import (
    NOTHING,
    age_text,
    counted,
    percent,
    round_trip_text,
    size_text,
    speed_text,
)
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_core.domain.view import NodeView

_LABEL = 10
_MAX_ADDRESSES = 8


def node_lines(node: NodeView) -> tuple[Line, ...]:
    """Identity and addresses, what it holds, and how busy it is."""
    facts = [
        ("id", clean_line(node.node, 64)),
        ("role", f"{node.role}{' · this node' if node.me else ''} · {node.liveness}"),
        ("version", clean_line(node.version, 40)),
        ("address", _addresses(node)),
        ("holds", _held(node)),
        ("capacity", size_text(node.capacity) if node.capacity else NOTHING),
        ("KV", _kv(node)),
        ("speed", f"{speed_text(node.tokens_per_s)} tokens/s"),
    ]
    if not node.me:
        seen = age_text(node.last_seen_s)
        facts += [
            ("trip", _trip(node)),
            ("seen", seen if seen == "now" else f"{seen} ago"),
        ]
    return tuple((Span(label.ljust(_LABEL), "label"), Span(text)) for label, text in facts)


def _trip(node: NodeView) -> str:
    if node.rtt_s is None and node.distance_s is not None:
        return f"about {round_trip_text(node.distance_s)}, by its place on the network"
    return round_trip_text(node.rtt_s)


def _addresses(node: NodeView) -> str:
    """Where it is dialled, and through which sentinels it is met by those who cannot dial it."""
    rest = len(node.addresses) - _MAX_ADDRESSES
    shown = [clean_line(address, 80) for address in node.addresses[:_MAX_ADDRESSES]]
    if rest > 0:
        shown.append(f"and {rest} more")
    shown += [f"via sentinel {clean_line(relay[:8])}" for relay in node.relays[:_MAX_ADDRESSES]]
    return ", ".join(shown) or f"{NOTHING} (takes no connections)"


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
