"""Where the time of each token went: a bar for each pass, and what is usual for each Stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.pass_times import ms_text, stage_times, typical
from diffuse_core.domain.plain_text import clean_line, shorten
from diffuse_tui.presenter.columns import GAP, Column
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from diffuse_core.domain.pass_times import Spread
    from diffuse_core.domain.view import RouteStep, StageTiming, TextDelta
    from diffuse_tui.presenter.columns import Sort

    Pass = tuple[StageTiming, ...]

MAX_PASSES = 4_096
"""Passes of one answer whose times are kept."""
MAX_STAGES = 8
"""Stages whose figures are told one by one."""
MIN_BAR = 8

SHADES = "░▒█"
LEGEND = "░ wire ▒ queue █ compute"
HEALED = "✚"

NUMBER = Column("token", 6, right=True)
TOTAL = Column("ms", 7, right=True, falls=True)
TEXT = Column("text", 14, rank=1, sortable=False)
BAR = Column("where the time went", MIN_BAR, grows=True, sortable=False)
COLUMNS = (NUMBER, TOTAL, TEXT, BAR)

_NOTHING = "No token has been measured yet: ask something, then come back."


class Times:
    """What is measured of an answer, while it grows and after.

    Attributes:
        passes: The times of each pass, at most `MAX_PASSES`.
        texts: What each pass gave.
        route: The Stages that the passes go through.
        healed: Places of passes before which a lost Stage was replaced.
        tokens: How many came.
    """

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.texts: list[str] = []
        self.route: Sequence[RouteStep] = ()
        self.healed: list[int] = []
        self.tokens = 0
        self._first = self._last = 0.0

    @property
    def tokens_per_s(self) -> float:
        """The rate after the first token; 0 as long as there is none."""
        span = self._last - self._first
        return (self.tokens - 1) / span if self.tokens > 1 and span > 0 else 0.0

    def add(self, delta: TextDelta, at: float = 0.0) -> None:
        """More text, and when it came, in seconds; one without times is of the pass before."""
        if delta.token_ids:
            self._last = at
            self._first = self._first if self.tokens else at
            self.tokens += len(delta.token_ids)
        if len(self.passes) >= MAX_PASSES:
            return
        if delta.stages:
            self.passes.append(delta.stages)
            self.texts.append(delta.text)
        elif self.texts:
            self.texts[-1] += delta.text


class TokenRow(NamedTuple):
    """One pass; `number` counts from 1. `healed`: a Stage was replaced before it."""

    number: int
    text: str
    stages: tuple[StageTiming, ...]
    total_ms: float
    healed: bool = False


def token_rows(
    passes: Sequence[Pass], texts: Sequence[str], healed: Collection[int] = ()
) -> tuple[TokenRow, ...]:
    """A row for each pass; `healed` are the places of those that came after a heal."""
    return tuple(
        TokenRow(
            number=index + 1,
            text=texts[index] if index < len(texts) else "",
            stages=stages,
            total_ms=sum(each.wire_ms + each.queue_ms + each.compute_ms for each in stages),
            healed=index in healed,
        )
        for index, stages in enumerate(passes)
    )


def scale_ms(rows: Sequence[TokenRow]) -> float:
    """What a whole bar stands for: all but the slowest twentieth fit, the prompt left out."""
    totals = sorted(row.total_ms for row in (rows[1:] or rows))
    return totals[(len(totals) - 1) * 95 // 100] if totals else 0.0


def bar_width(width: int) -> int:
    """Cells for the bars in a table of `width` cells."""
    taken = sum(column.width + GAP for column in (NUMBER, TOTAL, TEXT))
    return max(MIN_BAR, width - taken)


def bar(stages: Pass, scale: float, width: int) -> str:
    """Wire, queue and compute of one Stage after the other; `›` where it goes on."""
    drawn, reached = "", 0.0
    for stage in stages:
        parts = (stage.wire_ms, stage.queue_ms, stage.compute_ms)
        for part, shade in zip(parts, SHADES, strict=True):
            reached += max(0.0, part) / scale * width if scale > 0 else 0.0
            drawn += shade * (round(min(reached, width + 1.0)) - len(drawn))
    return drawn if len(drawn) <= width else drawn[: width - 1] + "›"


def cells(row: TokenRow, scale: float, width: int) -> tuple[Span, ...]:
    """One cell for each of `COLUMNS`, the bar of `width` cells."""
    slow = scale > 0 and row.total_ms > scale
    text = clean_line(row.text.replace("\n", "⏎"), TEXT.width)
    return (
        Span(f"{HEALED if row.healed else ''}{row.number}", "good" if row.healed else "dim"),
        Span(ms_text(row.total_ms), "warning" if slow else "plain"),
        Span(text, "accent"),
        Span(bar(row.stages, scale, width), "label"),
    )


def ordered(rows: Sequence[TokenRow], sort: Sort | None) -> list[TokenRow]:
    """The rows as `sort` has them; None: as they came."""
    if sort is None:
        return list(rows)
    falling = sort.falling
    if sort.column == TOTAL.name:
        return sorted(rows, key=lambda row: row.total_ms, reverse=falling)
    return sorted(rows, key=lambda row: row.number, reverse=falling)


def head_lines(passes: Sequence[Pass], route: Sequence[RouteStep]) -> tuple[Line, ...]:
    """For each Stage the usual milliseconds and those that 95 % stay within, and its share."""
    times = stage_times(passes, len(route))
    if not times:
        return ((Span(_NOTHING, "dim"),),)
    count = len(typical(passes, len(route)))
    lines: list[Line] = [
        (Span(f"{counted(count, 'pass', 'passes')} · ms, usual/95 % · {LEGEND}", "dim"),)
    ]
    for step, stage in zip(route[:MAX_STAGES], times, strict=False):
        figures = f"{stage.share:4.0%}  wire {_both(stage.wire)} · queue {_both(stage.queue)}"
        lines.append(
            (
                Span(f"{shorten(f'{clean_line(step.node[:8])} {step.slice}', 16):<17}", "accent"),
                Span(f"{figures} · compute {_both(stage.compute)}"),
            )
        )
    if len(route) > MAX_STAGES:
        lines.append((Span(f"and {counted(len(route) - MAX_STAGES, 'more stage')}", "dim"),))
    return tuple(lines)


def detail_lines(row: TokenRow, route: Sequence[RouteStep]) -> tuple[Line, ...]:
    """All figures of one pass."""
    text = clean_line(row.text.replace("\n", "⏎"), 60)
    note = f" · {HEALED} a lost stage was replaced before it" if row.healed else ""
    first = " · the prompt's pass" if row.number == 1 else ""
    lines: list[Line] = [
        (
            Span(f"token {row.number} ", "strong"),
            Span(text, "accent"),
            Span(f" {ms_text(row.total_ms)} ms{first}", "dim"),
            Span(note, "good"),
        )
    ]
    for index, stage in enumerate(row.stages[:MAX_STAGES]):
        # After a heal the Route that is known may be another one than the pass took.
        known = len(route) == len(row.stages)
        name = f"{clean_line(route[index].node[:8])} {route[index].slice}" if known else ""
        figures = (
            f"wire {ms_text(stage.wire_ms)} · queue {ms_text(stage.queue_ms)}"
            f" · compute {ms_text(stage.compute_ms)}"
        )
        named = shorten(name or f"stage {index + 1}", 16)
        lines.append((Span(f"  {named:<17}", "accent"), Span(figures)))
    return tuple(lines)


def _both(spread: Spread) -> str:
    return f"{ms_text(spread.p50)}/{ms_text(spread.p95)}"
