"""What this machine's figures were in the last ten minutes.

Samples are noted as they come, at the time of the picture they came with; no clock is read.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from diffuse_tui.presenter.figures import percent
from diffuse_tui.presenter.history import BRIDGED, SAMPLE_S, Series

if TYPE_CHECKING:
    from diffuse_core.domain.machine import HostProgress
    from diffuse_core.domain.view import Telemetry

SAMPLES = 600
"""Samples kept of each figure."""

RATE_SAMPLES = 10
"""Over so many samples the speed of a download is measured."""

Figure = Literal["cpu", "memory", "gpu", "kv", "tokens", "in", "out"]


class _Sample(NamedTuple):
    """Percent for `cpu`, `memory`, `gpu` and `kv`, else per second; NaN where unknown."""

    figures: tuple[float, ...]
    progress: HostProgress | None = None


_ORDER: tuple[Figure, ...] = ("cpu", "memory", "gpu", "kv", "tokens", "in", "out")
_BLANK = _Sample((math.nan,) * len(_ORDER))


class MachineHistory:
    """A ring of samples, one for each second."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._slot: int | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def note(self, taken_at: float, telemetry: Telemetry | None) -> None:
        """Take the figures of a moment (Unix seconds); a second one of it replaces the first."""
        slot = int(taken_at // SAMPLE_S) if math.isfinite(taken_at) else 0
        sample = _BLANK if telemetry is None else _sample(telemetry)
        if self._slot is not None:
            self._pass_over(slot - self._slot)
        self._slot = slot
        self._samples.append(sample)

    def _pass_over(self, slots: int) -> None:
        """Make room for the next sample, so many slots later; a clock set back starts anew."""
        if slots == 0 and self._samples:
            self._samples.pop()
        elif slots < 0 or slots > SAMPLES:
            self._samples.clear()
        else:
            missed = slots - 1
            last = self._samples[-1] if missed <= BRIDGED and self._samples else _BLANK
            self._samples.extend([last] * missed)

    def series(self, figure: Figure) -> Series:
        """The samples of one figure."""
        place = _ORDER.index(figure)
        return Series(tuple(one.figures[place] for one in self._samples), self._slot or 0)

    def speed(self) -> float | None:
        """Bytes per second of what is being downloaded or loaded now; None while unknown."""
        newest = self._samples[-1].progress if self._samples else None
        if newest is None or not newest.total:
            return None
        for back in range(min(RATE_SAMPLES, len(self._samples) - 1), 0, -1):
            before = self._samples[-1 - back].progress
            if before is not None and (before.phase, before.slice) == (newest.phase, newest.slice):
                return max(0.0, newest.done - before.done) / (back * SAMPLE_S)
        return None


def _sample(telemetry: Telemetry) -> _Sample:
    used = telemetry.memory_total - telemetry.memory_available
    told = [gpu.busy_percent for gpu in telemetry.gpus if gpu.busy_percent is not None]
    budget = telemetry.kv_budget
    figures = (
        telemetry.cpu_percent,
        float(percent(used, telemetry.memory_total)),
        max(told, default=math.nan),
        float(percent(telemetry.kv_used, budget)) if budget > 0 else math.nan,
        telemetry.tokens_per_s,
        telemetry.bytes_in_per_s,
        telemetry.bytes_out_per_s,
    )
    return _Sample(figures, telemetry.progress)
