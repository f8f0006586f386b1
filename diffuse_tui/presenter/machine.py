"""This machine and what the node on it holds: what there is to tell, the most important first.

How the lines are drawn at a width is `machine_lines`; larger graphs are `machine_graphs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import (
    NOTHING,
    age_text,
    counted,
    duration_text,
    figure_text,
    percent,
    rate_text,
    size_text,
    speed_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.machine import GpuFigures, HostProgress
    from diffuse_core.domain.view import NetworkView, Telemetry
    from diffuse_tui.presenter.machine_history import Figure, MachineHistory
    from diffuse_tui.presenter.spans import Tone

LATE_S = 0.25
"""An event loop that gets to what is due so much too late is worth a word."""

LOW_DISK = 2 * 2**30
_DOES = {"reading": "reads", "downloading": "fetches", "loading": "loads"}
FULL_TONES: tuple[tuple[int, Tone], ...] = ((95, "bad"), (80, "warning"))


class Item(NamedTuple):
    """One line's worth. `rank` says what gives way first: the highest; `gauge` is percent."""

    rank: int
    label: str
    text: str
    tone: Tone = "plain"
    gauge: int | None = None
    figure: Figure | None = None
    done: bool = False
    """A gauge of which more is better."""


def machine_items(telemetry: Telemetry, history: MachineHistory) -> list[Item]:
    """All there is to tell, in the order in which it is shown."""
    items = [
        *_progress(telemetry.progress, history.speed()),
        *_load(telemetry),
        *_gpus(telemetry.gpus),
        _held(telemetry),
        *_relay(telemetry),
        _kv(telemetry),
        Item(
            4,
            "traffic",
            f"↓ {rate_text(telemetry.bytes_in_per_s)}  ↑ {rate_text(telemetry.bytes_out_per_s)}"
            f"  {speed_text(telemetry.tokens_per_s)} tok/s",
        ),
        *_late(telemetry),
        Item(
            8,
            "device",
            f"{clean_line(telemetry.device, 24)} · node {size_text(telemetry.process_rss)}"
            f" · up {duration_text(telemetry.uptime_s)}",
        ),
        *_warmth(telemetry),
        *_disk(telemetry.disk_free),
    ]
    if telemetry.reason and telemetry.slice is not None:
        items.append(Item(11, "why", clean_line(telemetry.reason, 120), "dim"))
    return items


def met_text(view: NetworkView) -> str:
    """Through whom others reach this node; nothing when they dial it."""
    for node in view.nodes:
        if node.me and node.relays:
            via = ", ".join(clean_line(relay[:8]) for relay in node.relays[:2])
            return f"relayed by sentinel {via}"
        if node.me and not node.addresses:
            return "no sentinel relays for it now"
    return ""


def _progress(progress: HostProgress | None, speed: float | None) -> Iterator[Item]:
    if progress is None:
        return
    value = percent(progress.fraction, 1.0)
    told = [f"{value} %"]
    if progress.total > 0:
        told.append(f"{size_text(progress.done)} of {size_text(progress.total)}")
        if speed:
            left = (progress.total - progress.done) / speed
            told += [rate_text(speed), f"{age_text(max(2.0, left))} left"]
    yield Item(0, _DOES[progress.phase], " · ".join(told), "accent", value, done=True)


def _load(telemetry: Telemetry) -> Iterator[Item]:
    cpu = f"{figure_text(telemetry.cpu_percent)} % of {counted(telemetry.cpu_count, 'core')}"
    yield Item(1, "CPU", cpu, gauge=percent(telemetry.cpu_percent, 100), figure="cpu")
    used = telemetry.memory_total - telemetry.memory_available
    memory = f"{size_text(used)} of {size_text(telemetry.memory_total)}"
    part = percent(used, telemetry.memory_total)
    yield Item(2, "memory", memory, gauge=part, figure="memory")


def _gpus(gpus: tuple[GpuFigures, ...]) -> Iterator[Item]:
    for number, gpu in enumerate(gpus):
        told = [f"{size_text(gpu.memory_used)} of {size_text(gpu.memory_total)}"]
        if gpu.busy_percent is not None:
            told.insert(0, f"{figure_text(gpu.busy_percent)} %")
        if gpu.celsius is not None:
            told.append(f"{figure_text(gpu.celsius)} °C")
        if len(gpus) == 1:
            told.append(clean_line(gpu.name, 32))
        busy = gpu.busy_percent
        value = percent(gpu.memory_used, gpu.memory_total) if busy is None else percent(busy, 100)
        label = "GPU" if len(gpus) == 1 else f"GPU {number}"
        # One GPU is more than what a second one adds.
        rank = 12 if number else 3
        yield Item(rank, label, " · ".join(told), gauge=value, figure=None if number else "gpu")


def _held(telemetry: Telemetry) -> Item:
    if telemetry.slice is None:
        stage = clean_line(telemetry.stage).removeprefix("holds ")
        return Item(2, "holds", stage or "no slice", "dim")
    told = [f"{telemetry.slice} of {clean_line(telemetry.model or '', 40)}"]
    if telemetry.weight_bytes:
        told.append(size_text(telemetry.weight_bytes))
    if telemetry.stage and telemetry.progress is None:
        told.append(clean_line(telemetry.stage, 40))
    label = "holds" if telemetry.progress is None else "takes"
    return Item(2, label, " · ".join(told), "accent")


def _relay(telemetry: Telemetry) -> Iterator[Item]:
    relay = telemetry.relay
    if relay is not None:
        yield Item(
            2,
            "relays",
            f"{counted(relay.reservations, 'node')} · {counted(relay.circuits, 'circuit')}"
            f" · {size_text(relay.bytes_relayed)} passed on",
            "accent",
        )


def _kv(telemetry: Telemetry) -> Item:
    if telemetry.kv_budget <= 0:
        return Item(10, "KV", NOTHING, "dim")
    text = (
        f"{size_text(telemetry.kv_used)} of {size_text(telemetry.kv_budget)}"
        f" · {counted(telemetry.sessions, 'session')}"
    )
    value = percent(telemetry.kv_used, telemetry.kv_budget)
    return Item(5, "KV", text, gauge=value, figure="kv")


def _late(telemetry: Telemetry) -> Iterator[Item]:
    if telemetry.loop_lag_p99_s >= LATE_S:
        late, most = telemetry.loop_lag_p99_s, telemetry.loop_lag_max_s
        figures = f"{figure_text(late, 1)} s late, {figure_text(most, 1)} s at most"
        text = f"▲ the node answers {figures}, in the last minute"
        yield Item(3, "delay", text, "warning")


def _warmth(telemetry: Telemetry) -> Iterator[Item]:
    if telemetry.temperatures:
        told = (
            f"{clean_line(one.label, 16)} {figure_text(one.celsius)}"
            for one in telemetry.temperatures
        )
        yield Item(9, "°C", " · ".join(told))


def _disk(free: int | None) -> Iterator[Item]:
    if free is not None:
        low = free < LOW_DISK
        text = f"{'▲ only ' if low else ''}{size_text(free)} free for models"
        yield Item(3 if low else 10, "disk", text, "warning" if low else "plain")
