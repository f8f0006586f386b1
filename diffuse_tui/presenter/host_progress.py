"""How far a host is: its phase, a bar, bytes and rate, and what it serves once it is ready."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import (
    bar,
    counted,
    percent,
    rate_text,
    size_text,
    speed_text,
)
from diffuse_tui.presenter.hosting import hosts, leaves
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_core.domain.view import Telemetry
    from diffuse_tui.presenter.hosting import Status
    from diffuse_tui.presenter.spans import Tone

_LABEL = 13
_PERCENT = re.compile(r", (\d{1,3}) ?%$")
_WINDOW = 8
"""Pictures that a rate is taken over: some seconds."""


class Pace(NamedTuple):
    """Bytes at points in time, the newest last; of one phase only."""

    phase: str = ""
    seen: tuple[tuple[float, int], ...] = ()

    def then(self, at: float, phase: str, done: int) -> Pace:
        """With `done` bytes at Unix time `at` in seconds; another phase begins anew."""
        seen = self.seen if phase == self.phase else ()
        if seen and (done < seen[-1][1] or at <= seen[-1][0]):
            seen = ()
        return Pace(phase, (*seen, (at, done))[-_WINDOW:])

    @property
    def rate(self) -> float | None:
        """Bytes per second; None when it is too early to tell."""
        if len(self.seen) < 2:
            return None
        (begun, before), (now, after) = self.seen[0], self.seen[-1]
        return (after - before) / (now - begun)


class Step(NamedTuple):
    """Where a host is: what it does, the percentage when there is one, bytes when known."""

    phase: str
    percent: int | None = None
    done: int = 0
    total: int = 0


def step_of(telemetry: Telemetry) -> Step:
    """The figures when the node sends them, else what its words say."""
    text = clean_line(telemetry.stage, 80)
    found = _PERCENT.search(text)
    phase = text[: found.start()] if found else text
    progress = telemetry.progress
    if progress is None or leaves(telemetry):
        # A node of a version that tells no figures.
        return Step(phase, min(100, int(found[1])) if found else None)
    done = max(0, min(progress.done, progress.total))
    return Step(phase, percent(progress.fraction, 1.0), done, max(0, progress.total))


def glyph(telemetry: Telemetry) -> tuple[str, str, Tone]:
    """Shape, word and tone of where a host is."""
    if leaves(telemetry):
        return "▚", "Leaving", "warning"
    if telemetry.stage == "ready":
        return "●", "Ready", "good"
    if telemetry.stage == "finishing its sessions":
        return "▚", "Draining", "warning"
    return "◌", "Getting ready", "accent"


def host_lines(
    telemetry: Telemetry | None, status: Status, pace: Pace, width: int
) -> tuple[Line, ...]:
    """A host in a few lines; nothing when there is none."""
    if telemetry is None or not hosts(telemetry):
        return ()
    shape, word, tone = glyph(telemetry)
    step = step_of(telemetry)
    lines: list[Line] = [(Span(f" {shape} {word}", tone), Span(_beside(step, word)))]
    if step.percent is not None:
        lines.append(_bar(step, pace, width))
    if telemetry.model:
        lines.append(_line("model", clean_line(telemetry.model, 60), "accent"))
    if telemetry.slice is not None:
        part = telemetry.slice
        weights = f" · {size_text(telemetry.weight_bytes)}" if telemetry.weight_bytes else ""
        text = f"layers {part} · {counted(part.end - part.start, 'layer')}{weights}"
        lines.append(_line("holds", text))
    if telemetry.reason and telemetry.slice is not None:
        lines.append(_line("because", clean_line(telemetry.reason, max(20, width - _LABEL - 1))))
    if telemetry.kv_budget > 0:
        lines.append(_line("KV cache", f"{size_text(telemetry.kv_used)} of "
                                       f"{size_text(telemetry.kv_budget)}"))  # fmt: skip
        speed = f" · {speed_text(telemetry.tokens_per_s)} tok/s"
        lines.append(_line("sessions", f"{telemetry.sessions}{speed}"))
    lines.append(_line("started by", _starter(status)))
    return tuple(lines)


def _beside(step: Step, word: str) -> str:
    return "" if step.phase.lower() == word.lower() else f" · {step.phase}"


def _bar(step: Step, pace: Pace, width: int) -> Line:
    share = step.percent or 0
    text = f" {share:3d} %"
    if step.total:
        text += f"  {size_text(step.done)} of {size_text(step.total)}"
        if pace.rate:
            text += f" · {rate_text(pace.rate)}"
    filled, empty = bar(share, max(6, min(40, width - len(text) - 2)))
    return (Span(f" {filled}", "good"), Span(empty, "dim"), Span(text))


def _starter(status: Status) -> str:
    if status.mine:
        return "this app"
    process = f" · process {status.other}" if status.other else ""
    return ("this app, before it was left" if status.earlier else "not this app") + process


def _line(label: str, text: str, tone: Tone = "plain") -> Line:
    return (Span(f" {label}".ljust(_LABEL), "label"), Span(text, tone))
