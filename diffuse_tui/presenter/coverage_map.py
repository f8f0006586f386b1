"""The coverage map as text: layers across, one row per holder, replica counts underneath.

Geometry first (`MapFrame`), then one line at a time, so that a widget draws only the rows it shows
however many holders there are. Every state differs in shape, not only in colour.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.slices import ranges_where
from diffuse_tui.presenter.spans import Line, Span, merged

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.coverage_rows import MapRow, MapState
    from diffuse_tui.presenter.spans import Tone

LABEL = 12
"""Cells left of the layers: mark, short id, the cursor's column and the embedding's."""

_SLICE_WIDTH = 9
_STATE_WIDTH = 9
_MIN_AREA = 8
_CROWDED = 4
"""Cells that a boundary or a count needs on average to be read."""

STATE_GLYPH: dict[MapState, tuple[str, Tone]] = {
    "claiming": ("┄", "dim"),
    "loading": ("▒", "warning"),
    "ready": ("█", "good"),
    "leaving": ("▚", "dim"),
    "suspect": ("?", "warning"),
}
GAP = "░"
CURSOR = "▸"
LAYER_CURSOR = "▼"


class MapFrame(NamedTuple):
    """The geometry of one drawing. `area` cells show `layers` layers.

    `spans` is the half-open layer range that each cell stands for: one layer when there is room.
    """

    model: ModelView
    rows: tuple[MapRow, ...]
    width: int
    area: int
    show_slice: bool
    show_state: bool
    cuts: frozenset[int]
    spans: tuple[tuple[int, int], ...]
    worst: tuple[int, ...]
    """Holders of the layer with the fewest, in each cell."""

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.model.layers

    def cell(self, layer: int) -> int:
        """The first cell of `layer`; `area` for the end of the model."""
        return -(-layer * self.area // self.layers)

    def layer_at(self, x: int) -> int | None:
        """The layer that is drawn at cell `x` of a line; None beside the layers."""
        at = x - LABEL
        return self.spans[at][0] if 0 <= at < self.area else None

    def place(self, layer: int) -> int:
        """The cell of a line in which `layer` is drawn."""
        at = min(layer * self.area // self.layers, self.area - 1)
        while at + 1 < self.area and self.spans[at][1] <= layer:
            at += 1
        return LABEL + at


def map_frame(
    model: ModelView,
    rows: Sequence[MapRow],
    width: int,
    *,
    edges: Collection[int] = (),
    plain: bool = False,
) -> MapFrame:
    """Lay the map out for `width` cells; columns on the right go first when it is narrow.

    Args:
        model: what is drawn.
        rows: its holders.
        width: cells of a line.
        edges: layers besides at which something begins or ends.
        plain: without the columns on the right.
    """
    room = width - LABEL - 1
    show_slice = not plain and room - _SLICE_WIDTH >= 24
    show_state = show_slice and room - _SLICE_WIDTH - _STATE_WIDTH >= 30
    area = room - (_SLICE_WIDTH if show_slice else 0) - (_STATE_WIDTH if show_state else 0)
    area = max(_MIN_AREA, area)
    spans = tuple(_span(cell, area, model.layers) for cell in range(area))
    worst = tuple(min(model.replicas[start:end], default=0) for start, end in spans)
    cuts = {0, model.layers, *edges}
    for row in rows:
        cuts |= {row.part.start, min(row.part.end, model.layers)}
    if len(cuts) * _CROWDED > area:
        # Boundaries everywhere tell nothing: regular steps do.
        step = max(1, model.layers // max(1, area // (2 * _CROWDED)))
        cuts = {*range(0, model.layers, step), model.layers}
    found = frozenset(cuts)
    return MapFrame(model, tuple(rows), width, area, show_slice, show_state, found, spans, worst)


def _span(cell: int, area: int, layers: int) -> tuple[int, int]:
    start = cell * layers // area
    if layers <= area:
        return start, start + 1
    return start, max(start + 1, (cell + 1) * layers // area)


def legend(width: int) -> str:
    """What the shapes mean, as much of it as fits `width` cells."""
    shapes = "█ ready  ▒ loading  ┄ claiming  ▚ leaving  ░ gap"
    more = shapes.replace("░", "? suspect  ░")
    ends = "  E embedding  H head"
    ways = (more + ends, shapes + ends, more, shapes)
    return next((way for way in ways if len(way) <= width), shapes.replace("  ", " "))


def ruler(frame: MapFrame, cursor: int | None = None) -> Line:
    """The layer indices where slices begin and end, left-aligned at their cells.

    Over the layer `cursor` stands its mark instead.
    """
    marks = [" "] * (frame.area + 4)
    free = newest = 0
    for layer in sorted(frame.cuts):
        at, text = frame.cell(layer), str(layer)
        if at >= free or layer == frame.layers:
            at = min(at, frame.area + 4 - len(text))
            # The last number is the total: what stands in its way goes whole, for the rest of a
            # number would read as another one.
            if at < free:
                marks[newest:] = " " * (len(marks) - newest)
            for offset, digit in enumerate(text):
                marks[at + offset] = digit
            free, newest = at + len(text) + 1, at
    head = Span(" layers".ljust(LABEL), "label")
    if cursor is None:
        return (head, Span("".join(marks), "label"))
    at = frame.place(cursor) - LABEL
    # A number that the mark cuts off would read as another one.
    first, last = at, at + 1
    while first > 0 and marks[first - 1] != " " and marks[at] != " ":
        first -= 1
    while last < len(marks) and marks[last] != " " and marks[at] != " ":
        last += 1
    marks[first:last] = " " * (last - first)
    return (
        head,
        Span("".join(marks[:at]), "label"),
        Span(LAYER_CURSOR, "mine"),
        Span("".join(marks[at + 1 :]), "label"),
    )


def holder_line(frame: MapFrame, index: int, *, cursor: bool = False) -> Line:
    """The row of holder `index`, or of so many equal ones; marked where the cursor is."""
    row = frame.rows[index]
    glyph, tone = STATE_GLYPH[row.state]
    if row.me and tone == "good":
        tone = "mine"
    mark = "?" if row.state == "suspect" else "*" if row.me else "·" if row.inner else " "
    word = row.state if frame.show_state else ""
    named: Tone = "mine" if row.me or cursor else "plain"
    head = [
        Span(mark, "mine" if row.me else tone),
        Span(row.name.ljust(9), named),
        Span(CURSOR if cursor else " ", "mine"),
    ]
    return merged([*head, *_cells(frame, row.part, glyph, tone), Span(word, tone)])


def slice_line(frame: MapFrame, name: str, part: Slice, glyph: str, tone: Tone) -> Line:
    """A row for a slice that is only thought of."""
    head = Span(f" {name[: LABEL - 2]}".ljust(LABEL - 1))
    return merged([head, *_cells(frame, part, glyph, tone)])


def _cells(frame: MapFrame, part: Slice, glyph: str, tone: Tone) -> list[Span]:
    """The embedding's mark, the layers, the head's mark and the slice."""
    cells = [Span("E" if part.start == 0 else " ", tone)]
    cells += [_holder_cell(frame, cell, part, glyph, tone) for cell in range(frame.area)]
    cells.append(Span("H" if part.end >= frame.layers else " ", tone))
    if frame.show_slice:
        cells.append(Span(f" {part}".ljust(_SLICE_WIDTH)))
    return cells


def _holder_cell(frame: MapFrame, cell: int, part: Slice, glyph: str, tone: Tone) -> Span:
    first, end = frame.spans[cell]
    gap = frame.worst[cell] == 0
    whole = part.start <= first and end <= part.end
    if whole or (not gap and part.start < end and first < part.end):
        return Span(glyph, tone)
    if gap:  # Also where the holder has only a part of what the cell stands for.
        return Span(GAP, "bad")
    starts = first in frame.cuts and frame.cell(first) == cell
    return Span("┊" if starts and first else " ", "dim")


def counts_line(frame: MapFrame, label: str = "holders") -> Line:
    """Replicas under each layer: runs of equal count, `├── 2 ──┤`, gaps as `!! gap !!`."""
    cells = [Span(f" {label}".ljust(LABEL), "label")]
    runs = [list(run) for _, run in groupby(frame.worst)]
    target = frame.model.target_replicas
    if len(runs) * _CROWDED > frame.area:
        # Too many to read: join what is equally good, and tell from how many to how many.
        same = groupby(frame.worst, lambda count: (count > 0, count >= target))
        runs = [list(run) for _, run in same]
    cells += [_run(min(run), max(run), len(run), target) for run in runs]
    return merged(cells)


def _run(count: int, most: int, width: int, target: int) -> Span:
    if count == 0:
        word = " gap " if width >= 7 else "gap" if width >= 5 else ""
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
