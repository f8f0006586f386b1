"""Series of figures drawn with block characters: one row high, or several."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
"""Nothing, then one to eight eighths of a cell."""

_EIGHTHS = len(BLOCKS) - 1


def binned(
    values: Sequence[float], width: int, *, span: int | None = None, phase: int = 0
) -> list[float]:
    """The newest `span` of `values` as means of `width` equal groups, the newest last.

    Args:
        values: Oldest first; NaN where nothing was measured.
        width: How many groups.
        span: How many samples the whole width stands for; as many as there are, at least `width`,
            when it is not given.
        phase: Running number of the newest value. With it a group keeps its members while newer
            values come, so that a graph moves and does not waver.

    Returns:
        `width` numbers; NaN for a group without a measured value.
    """
    if width <= 0:
        return []
    size = max(1, math.ceil(max(span or len(values), width) / width))
    # The newest group holds what came since the last multiple of its size.
    newest = phase % size + 1
    groups: list[float] = []
    end = len(values)
    while len(groups) < width:
        start = end - (size if groups else newest)
        groups.append(_mean(values[max(0, start) : end]) if end > 0 else math.nan)
        end = start
    groups.reverse()
    return groups


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def highest(values: Sequence[float]) -> float:
    """The largest measured value; 0 when there is none."""
    return max((value for value in values if math.isfinite(value)), default=0.0)


def sparkline(
    values: Sequence[float],
    width: int,
    *,
    top: float | None = None,
    span: int | None = None,
    phase: int = 0,
) -> str:
    """One row of exactly `width` cells; see `binned` for `span` and `phase`.

    `top` is the value that fills a cell; without it the largest that is shown. A measured value
    is always seen, if only as the lowest block; what was not measured is a blank.
    """
    (row,) = block_rows(values, width, 1, top=top, span=span, phase=phase) or ("",)
    return row


def block_rows(
    values: Sequence[float],
    width: int,
    height: int,
    *,
    top: float | None = None,
    span: int | None = None,
    phase: int = 0,
) -> tuple[str, ...]:
    """A graph of `height` rows of `width` cells, the upper row first; as `sparkline` otherwise."""
    groups = binned(values, width, span=span, phase=phase)
    most = highest(groups) if top is None else top
    levels = [_level(value, most, height * _EIGHTHS) for value in groups]
    return tuple(
        "".join(BLOCKS[max(0, min(_EIGHTHS, level - row * _EIGHTHS))] for level in levels)
        for row in reversed(range(height))
    )


def _level(value: float, most: float, steps: int) -> int:
    """How many eighths high a value stands: 0 for none, else 1 to `steps`."""
    if not math.isfinite(value):
        return 0
    if most <= 0:
        return 1
    return max(1, min(steps, round(value / most * steps)))
