"""Where the time of a token went, as lines of text that 80 columns hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.domain.pass_times import ms_text, stage_times, typical
from diffuse_core.domain.plain_text import clean_line, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.pass_times import StageTimes
    from diffuse_core.domain.view import RouteStep, StageTiming

    Pass = tuple[StageTiming, ...]

BAR = 14
_NAME = 16
_FIGURE = 7
_SHADES = "░▒█"


def waterfall_lines(passes: Sequence[Pass], route: Sequence[RouteStep]) -> list[str]:
    """A table of wire, queue and compute of each Stage; no lines where nothing was measured.

    A bar for each Stage begins where the one before it ended: so far was a token by then.
    """
    times = stage_times(passes, len(route))
    if not times:
        return []
    heads = "".join(f"{name:>{2 * _FIGURE}}" for name in ("wire", "queue", "compute"))
    ranks = "".join(f"{rank:>{_FIGURE}}" for rank in ("p50", "p95") * 3)
    count = len(typical(passes, len(route)))
    lines = [
        f"{'ms of a pass':<{_NAME}}{heads}",
        f"{'stage':<{_NAME}}{ranks}{'share':>6}",
    ]
    begun = 0.0
    for step, stage in zip(route, times, strict=True):
        lines.append(_row(step, stage, begun))
        begun += stage.share
    passed = "1 pass" if count == 1 else f"{count} passes"
    lines.append(f"{passed}; ░ wire ▒ queue █ compute")
    return lines


def token_timings(passes: Sequence[Pass], given: Sequence[int]) -> list[dict[str, Any]]:
    """Plain data: for each pass how many tokens it gave, and its milliseconds on each Stage.

    No Stages where a pass was not measured.
    """
    return [
        {
            "tokens": tokens,
            "stages": [
                {"wire_ms": t.wire_ms, "queue_ms": t.queue_ms, "compute_ms": t.compute_ms}
                for t in stages
            ],
        }
        for stages, tokens in zip(passes, given, strict=True)
    ]


def _row(step: RouteStep, stage: StageTimes, begun: float) -> str:
    name = shorten(f"{clean_line(step.node[:8])} {step.slice}", _NAME)
    figures = "".join(
        f"{ms_text(figure):>{_FIGURE}}"
        for spread in (stage.wire, stage.queue, stage.compute)
        for figure in spread
    )
    return f"{name:<{_NAME}}{figures}{stage.share:>6.0%}  {_bar(stage, begun)}".rstrip()


def _bar(stage: StageTimes, begun: float) -> str:
    """Of BAR columns for the whole: what came before is left blank."""
    drawn, reached = " " * round(begun * BAR), begun
    for part, shade in zip(stage.parts, _SHADES, strict=True):
        reached += part
        drawn += shade * (round(min(reached, 1.0) * BAR) - len(drawn))
    return drawn
