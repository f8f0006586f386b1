"""This machine and what the node on it holds, as lines of label and value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import (
    NOTHING,
    bar,
    counted,
    duration_text,
    percent,
    rate_text,
    size_text,
    speed_text,
)
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_core.domain.view import NetworkView, Telemetry
    from diffuse_tui.presenter.spans import Tone

_LABEL = 9
_BAR = 12


def machine_lines(telemetry: Telemetry | None, width: int, rows: int = 6) -> tuple[Line, ...]:
    """At most `rows` lines for `width` cells; one that says so when there is nothing to show."""
    if telemetry is None:
        return ((Span(" no figures from this machine yet", "dim"),),)
    gauge = _BAR if width >= 40 else 6
    used = telemetry.memory_total - telemetry.memory_available
    memory = f"{size_text(used)} of {size_text(telemetry.memory_total)}"
    node = f"{size_text(telemetry.process_rss)} · up {duration_text(telemetry.uptime_s)}"
    lines = (
        _gauge(
            "CPU",
            percent(telemetry.cpu_percent, 100),
            f"{telemetry.cpu_percent:.0f} % of {counted(telemetry.cpu_count, 'core')}",
            gauge,
        ),
        _gauge("memory", percent(used, telemetry.memory_total), memory, gauge),
        _line("device", f"{clean_line(telemetry.device, 24)} · node {node}"),
        _line("holds", *_held(telemetry)),
        _kv(telemetry, gauge),
        _line(
            "traffic",
            f"↓ {rate_text(telemetry.bytes_in_per_s)}  ↑ {rate_text(telemetry.bytes_out_per_s)}"
            f"  {speed_text(telemetry.tokens_per_s)} tok/s",
        ),
    )
    # The device and the KV are the least of it where there is little room.
    return lines if rows >= len(lines) else tuple(lines[i] for i in (0, 1, 3, 5, 4, 2)[:rows])


def met_text(view: NetworkView) -> str:
    """Through whom others reach this node; nothing when they dial it."""
    for node in view.nodes:
        if node.me and node.relays:
            via = ", ".join(clean_line(relay[:8]) for relay in node.relays[:2])
            return f"relayed by sentinel {via}"
        if node.me and not node.addresses:
            return "no sentinel relays for it now"
    return ""


def _held(telemetry: Telemetry) -> tuple[str, Tone]:
    if telemetry.slice is None:
        stage = clean_line(telemetry.stage).removeprefix("holds ")
        return stage or "no slice", "dim"
    name = clean_line(telemetry.model or "", 40)
    stage = f" · {clean_line(telemetry.stage, 40)}" if telemetry.stage else ""
    weights = f" · {size_text(telemetry.weight_bytes)}" if telemetry.weight_bytes else ""
    return f"{telemetry.slice} of {name}{weights}{stage}", "accent"


def _kv(telemetry: Telemetry, gauge: int) -> Line:
    if telemetry.kv_budget <= 0:
        return _line("KV", NOTHING, "dim")
    text = (
        f"{size_text(telemetry.kv_used)} of {size_text(telemetry.kv_budget)}"
        f" · {counted(telemetry.sessions, 'session')}"
    )
    return _gauge("KV", percent(telemetry.kv_used, telemetry.kv_budget), text, gauge)


def _gauge(label: str, value: int, text: str, width: int) -> Line:
    filled, empty = bar(value, width)
    tone: Tone = "bad" if value >= 95 else "warning" if value >= 80 else "good"
    return (
        Span(f" {label}".ljust(_LABEL), "label"),
        Span(filled, tone),
        Span(empty, "dim"),
        Span(f" {text}"),
    )


def _line(label: str, text: str, tone: Tone = "plain") -> Line:
    return (Span(f" {label}".ljust(_LABEL), "label"), Span(text, tone))
