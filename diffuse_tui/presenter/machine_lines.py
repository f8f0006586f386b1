"""This machine, drawn: as many lines as fit, and graphs where there is room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.presenter.figures import bar, figure_text, rate_text, speed_text
from diffuse_tui.presenter.machine import FULL_TONES, Item, machine_items
from diffuse_tui.presenter.spans import Line, Span, plain
from diffuse_tui.presenter.sparkline import block_rows, highest, sparkline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from diffuse_core.domain.view import Telemetry
    from diffuse_tui.presenter.machine_history import Figure, MachineHistory
    from diffuse_tui.presenter.spans import Tone

_LABEL = 9
_GAUGE = 12
_TEXT = 31
"""Cells after a gauge from which on a sparkline stands, so that all of them start there."""

_LEAST_SPARK, _MOST_SPARK = 6, 40
SPARK_S, GRAPH_S = 120, 300
"""Seconds that a sparkline and a graph stand for."""

_LEAST_GRAPH, _MOST_GRAPH = 2, 8
"""Rows of a graph without its heading."""

_LEAST_BAND = _LEAST_GRAPH + 2
"""Rows from which on there are graphs: a blank line and a heading are above them."""

_MAIN = 9
"""What ranks behind this gives way to graphs."""

_TWO_ABREAST = 56

_GRAPHS: tuple[tuple[Figure, str, float | None, Callable[[float], str], Tone], ...] = (
    ("cpu", "CPU", 100.0, lambda value: f"{figure_text(value)} %", "good"),
    ("memory", "memory", 100.0, lambda value: f"{figure_text(value)} %", "good"),
    ("gpu", "GPU", 100.0, lambda value: f"{figure_text(value)} %", "good"),
    ("tokens", "tokens/s", None, speed_text, "accent"),
    ("in", "network in", None, rate_text, "accent"),
    ("out", "network out", None, rate_text, "accent"),
)


def machine_lines(
    telemetry: Telemetry | None, history: MachineHistory, width: int, rows: int
) -> tuple[Line, ...]:
    """At most `rows` lines for `width` cells; one that says so when there is nothing to show."""
    if telemetry is None:
        return ((Span(" no figures from this machine yet", "dim"),),)
    items = machine_items(telemetry, history)
    main = [item for item in items if item.rank <= _MAIN]
    if len(history) and rows - len(items) < _LEAST_BAND <= rows - len(main):
        items = main
    kept = sorted(range(len(items)), key=lambda place: (items[place].rank, place))[:rows]
    lines = [_drawn(items[place], history, width) for place in sorted(kept)]
    return (*lines, *_graphs(history, width, rows - len(lines)))


def _drawn(item: Item, history: MachineHistory, width: int) -> Line:
    label = Span(f" {item.label}".ljust(_LABEL), "label")
    if item.gauge is None:
        return (label, Span(item.text, item.tone))
    filled, empty = bar(item.gauge, _GAUGE if width >= 40 else 6)
    line = (label, Span(filled, _tone(item)), Span(empty, "dim"), Span(f" {item.text}"))
    start = _LABEL + _GAUGE + _TEXT
    room = min(_MOST_SPARK, width - start - 1)
    used = len(plain(line))
    if item.figure is None or room < _LEAST_SPARK or used >= start:
        return line
    values, phase = history.series(item.figure)
    spark = sparkline(values, room, top=100.0, span=SPARK_S, phase=phase)
    return (*line, Span(" " * (start - used)), Span(spark, "dim"))


def _tone(item: Item) -> Tone:
    if item.done:
        return "accent"
    value = item.gauge or 0
    return next((tone for least, tone in FULL_TONES if value >= least), "good")


def _graphs(history: MachineHistory, width: int, rows: int) -> Iterator[Line]:
    """Graphs below a blank line, as many and as high as `rows` allow; none in too few."""
    abreast = 2 if width >= _TWO_ABREAST else 1
    there = [graph for graph in _GRAPHS if _known(history, graph[0])]
    bands = min(-(-len(there) // abreast), (rows - 1) // (_LEAST_GRAPH + 1))
    if bands < 1:
        return
    height = min(_MOST_GRAPH, (rows - 1) // bands - 1)
    each = (width - 1) // abreast - 1
    yield ()
    for band in range(bands):
        shown = there[band * abreast : (band + 1) * abreast]
        blocks = [_graph(history, graph, each, height) for graph in shown]
        for pieces in zip(*blocks, strict=True):
            yield tuple(span for piece in pieces for span in (Span(" "), *piece))


def _known(history: MachineHistory, figure: Figure) -> bool:
    """Whether it was ever measured: there may be no GPU."""
    values, _ = history.series(figure)
    return any(value == value for value in values)


def _graph(
    history: MachineHistory,
    graph: tuple[Figure, str, float | None, Callable[[float], str], Tone],
    width: int,
    height: int,
) -> Sequence[Line]:
    """A heading and `height` rows, each of `width` cells."""
    figure, name, top, text, tone = graph
    values, phase = history.series(figure)
    seen = values[-GRAPH_S:]
    now = text(seen[-1]) if seen and seen[-1] == seen[-1] else ""
    most = f"most {text(highest(seen))} in {GRAPH_S // 60} min"
    head = f"{name} {now}"
    said = most if len(head) + len(most) < width else ""
    rows = block_rows(values, width, height, top=top, span=GRAPH_S, phase=phase)
    heading = (
        Span(head[:width], "label"),
        Span(said.rjust(width - len(head[:width])), "dim"),
    )
    return (heading, *((Span(row, tone),) for row in rows))
