"""The coverage map as text: layers across, one row per holder, replica counts underneath.

Geometry first (`MapFrame`), then one line at a time, so that a widget draws only the rows it shows
however many holders there are. Every state differs in shape, not only in colour.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.slices import ranges_where
from diffuse_tui.presenter.spans import Line, Span, merged
from diffuse_tui.presenter.standing import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.records import HoldState
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NodeView
    from diffuse_tui.presenter.spans import Tone

LABEL = 12
"""Cells left of the layers: mark, short id, a space and the embedding's column."""

Holders = tuple[tuple["Slice", "NodeView"], ...]
"""Live hosts of the model with their slices, in slice order."""

_SLICE_WIDTH = 9
_STATE_WIDTH = 9
_MIN_AREA = 8
_CROWDED = 4
"""Cells that a boundary or a count needs on average to be read."""

STATE_GLYPH: dict[HoldState, tuple[str, Tone]] = {
    "claiming": ("┄", "dim"),
    "loading": ("▒", "warning"),
    "ready": ("█", "good"),
    "leaving": ("▚", "dim"),
}
GAP = "░"


class MapFrame(NamedTuple):
    """The geometry of one drawing. `area` cells show `layers` layers."""

    model: ModelView
    holders: Holders
    width: int
    area: int
    show_slice: bool
    show_state: bool
    cuts: frozenset[int]

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.model.layers

    def span(self, cell: int) -> tuple[int, int]:
        """The half-open layer range that `cell` stands for; one layer when there is room."""
        start = cell * self.layers // self.area
        if self.layers <= self.area:
            return start, start + 1
        return start, max(start + 1, (cell + 1) * self.layers // self.area)

    def cell(self, layer: int) -> int:
        """The first cell of `layer`; `area` for the end of the model."""
        return -(-layer * self.area // self.layers)


def map_frame(model: ModelView, nodes: Sequence[NodeView], width: int) -> MapFrame:
    """Lay the map out for `width` cells; columns on the right go first when it is narrow."""
    held = [(node.slice, node) for node in nodes if node.slice and holds(node, model)]
    holders = tuple(sorted(held, key=lambda pair: (pair[0], pair[1].node)))
    room = width - LABEL - 1
    show_slice = room - _SLICE_WIDTH >= 24
    show_state = show_slice and room - _SLICE_WIDTH - _STATE_WIDTH >= 30
    area = room - (_SLICE_WIDTH if show_slice else 0) - (_STATE_WIDTH if show_state else 0)
    area = max(_MIN_AREA, area)
    return MapFrame(
        model, holders, width, area, show_slice, show_state, _cuts(model, holders, area)
    )


def _cuts(model: ModelView, holders: Holders, area: int) -> frozenset[int]:
    cuts = {0, model.layers}
    for part, _ in holders:
        cuts |= {part.start, min(part.end, model.layers)}
    if len(cuts) * _CROWDED > area:
        # Boundaries everywhere tell nothing: regular steps do.
        step = max(1, model.layers // max(1, area // (2 * _CROWDED)))
        cuts = {*range(0, model.layers, step), model.layers}
    return frozenset(cuts)


def legend(width: int) -> str:
    """What the shapes mean, as much of it as fits `width` cells."""
    shapes = "█ ready  ▒ loading  ┄ claiming  ▚ leaving  ░ gap"
    ends = "  E embedding  H head"
    if len(shapes) + len(ends) <= width:
        return shapes + ends
    return shapes if len(shapes) <= width else shapes.replace("  ", " ")


def ruler(frame: MapFrame) -> Line:
    """The layer indices where slices begin and end, left-aligned at their cells."""
    marks = [" "] * (frame.area + 4)
    free = 0
    for layer in sorted(frame.cuts):
        at, text = frame.cell(layer), str(layer)
        if at >= free or layer == frame.layers:
            at = min(at, frame.area + 4 - len(text))
            # The last number is the total: it may push out what stands in its way.
            if at < free:
                marks[at - 1] = " "
            for offset, digit in enumerate(text):
                marks[at + offset] = digit
            free = at + len(text) + 1
    return (Span(" layers".ljust(LABEL), "label"), Span("".join(marks), "label"))


def holder_line(frame: MapFrame, index: int) -> Line:
    """The row of holder `index`."""
    part, node = frame.holders[index]
    glyph, tone = STATE_GLYPH[node.state or "claiming"]
    if node.liveness == "suspect":
        glyph, tone = "?", "warning"
    elif node.me and tone == "good":
        tone = "mine"
    mark = "?" if node.liveness == "suspect" else "*" if node.me else " "
    cells = [
        Span(mark, "mine" if node.me else tone),
        Span(clean_line(node.short, 8).ljust(8), "mine" if node.me else "plain"),
        Span("  "),
        Span("E" if part.start == 0 else " ", tone),
    ]
    cells += [_holder_cell(frame, cell, part, glyph, tone) for cell in range(frame.area)]
    cells.append(Span("H" if part.end >= frame.layers else " ", tone))
    if frame.show_slice:
        cells.append(Span(f" {part}".ljust(_SLICE_WIDTH), "plain"))
    if frame.show_state:
        word = "suspect" if node.liveness == "suspect" else node.state or ""
        cells.append(Span(word.ljust(_STATE_WIDTH), tone))
    return merged(cells)


def _holder_cell(frame: MapFrame, cell: int, part: Slice, glyph: str, tone: Tone) -> Span:
    first, end = frame.span(cell)
    gap = any(count == 0 for count in frame.model.replicas[first:end])
    whole = part.start <= first and end <= part.end
    if whole or (not gap and part.start < end and first < part.end):
        return Span(glyph, tone)
    if gap:  # Also where the holder has only a part of what the cell stands for.
        return Span(GAP, "bad")
    starts = first in frame.cuts and frame.cell(first) == cell
    return Span("┊" if starts and first else " ", "dim")


def counts_line(frame: MapFrame) -> Line:
    """Replicas under each layer: runs of equal count, `├── 2 ──┤`, gaps as `!! gap !!`."""
    worst = [
        min(frame.model.replicas[slice(*frame.span(c))], default=0) for c in range(frame.area)
    ]
    cells = [Span(" holders".ljust(LABEL), "label")]
    runs = [list(run) for _, run in groupby(worst)]
    target = frame.model.target_replicas
    if len(runs) * _CROWDED > frame.area:
        # Too many to read: join what is equally good, and tell from how many to how many.
        runs = [list(run) for _, run in groupby(worst, lambda count: (count > 0, count >= target))]
    cells += [_run(min(run), max(run), len(run), target) for run in runs]
    return merged(cells)


def _run(count: int, most: int, width: int, target: int) -> Span:
    if count == 0:
        word = " gap " if width >= 7 else ""
        return Span(word.center(width, "!"), "alarm")
    tone: Tone = "good" if count >= target else "warning"
    text = str(count) if count == most else f"{count}..{most}"
    if len(text) > width:
        return Span("+" * width, tone)
    if width < len(text) + 2:
        return Span(text.ljust(width, "┤"), tone)
    label = f" {text} " if width >= len(text) + 4 else text
    return Span("├" + label.center(width - 2, "─") + "┤", tone)


def gap_lines(frame: MapFrame, limit: int = 3) -> tuple[Line, ...]:
    """One line of words per missing range, at most `limit`."""
    total = frame.layers
    missing = frame.model.missing or ranges_where(c == 0 for c in frame.model.replicas)
    lines: list[Line] = []
    for gap in missing[:limit]:
        text = f" ! gap: layers {gap} of {total} are held by no live node"
        lines.append((Span(text, "bad"),))
    if len(missing) > limit:
        lines[-1] = (Span(f" ! and {len(missing) - limit + 1} more gaps", "bad"),)
    return tuple(lines)
