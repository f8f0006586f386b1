"""Times of many passes, summed up for each Stage: what is usual, what is slow, who has the share.

The times themselves come with the tokens (TextDelta.stages, see domain.waterfall).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import StageTiming

    Pass = tuple[StageTiming, ...]


class Spread(NamedTuple):
    """Milliseconds that half of the passes stay within, and that 95 % do."""

    p50: float
    p95: float


class StageTimes(NamedTuple):
    """One Stage over many passes; `parts` are wire, queue and compute of the whole time, 0..1."""

    wire: Spread
    queue: Spread
    compute: Spread
    parts: tuple[float, float, float]

    @property
    def share(self) -> float:
        """Part of the whole time that goes to this Stage and the way to it, 0..1."""
        return sum(self.parts)


def typical(passes: Sequence[Pass], stages: int) -> list[Pass]:
    """The passes that tell of a Route of so many Stages, but for the first, of the prompt.

    The first counts where there is no other.
    """
    first = passes[:1]
    fitting = [each for each in passes[1:] if len(each) == stages]
    return fitting or [each for each in first if len(each) == stages]


def stage_times(passes: Sequence[Pass], stages: int) -> tuple[StageTimes, ...]:
    """For each Stage of a Route of so many; none where no pass tells of them."""
    fitting = typical(passes, stages)
    if not fitting or not stages:
        return ()
    whole = sum(t.wire_ms + t.queue_ms + t.compute_ms for each in fitting for t in each)
    found = []
    for index in range(stages):
        columns = (
            [each[index].wire_ms for each in fitting],
            [each[index].queue_ms for each in fitting],
            [each[index].compute_ms for each in fitting],
        )
        wire, queue, compute = (Spread(rank(c, 50), rank(c, 95)) for c in columns)
        parts = tuple(sum(column) / whole if whole > 0 else 0.0 for column in columns)
        found.append(StageTimes(wire, queue, compute, (parts[0], parts[1], parts[2])))
    return tuple(found)


def ms_text(milliseconds: float) -> str:
    """Three digits or so: `0.02`, `9.00`, `40.1`, `1203`."""
    if milliseconds < 9.995:
        return f"{milliseconds:.2f}"
    return f"{milliseconds:.1f}" if milliseconds < 99.95 else f"{milliseconds:.0f}"


def rank(figures: Sequence[float], percent: int) -> float:
    """The least figure that so many percent of all do not pass (nearest rank)."""
    return sorted(figures)[max(0, -(-len(figures) * percent // 100) - 1)]
