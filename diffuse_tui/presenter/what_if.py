"""Answers to what-if questions, and how they are drawn.

They are the planner's own: what a Host would take is `planner.plan`, who would move is
`healing.moves`, as any Host that sees the same picture does. Nothing here changes the network.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from diffuse_tui.presenter.coverage_map import (
    LABEL,
    counts_line,
    map_frame,
    ruler,
    slice_line,
)
from diffuse_tui.presenter.spans import Line, Span
from diffuse_tui.presenter.standing import state_mark

if TYPE_CHECKING:
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.spans import Tone

MAX_COUNT = 100
"""Hosts that can be thought of at once."""
NAMED = 4
"""Nodes that are named one by one; of more only the number is told."""
UNTOLD = "the node here is of a version that does not tell the model's sizes"

_LABEL = 10
_STATE = len(" ○ Incomplete")
_RULER = 3
"""Cells by which a ruler may reach beyond the last layer, for its number."""


class WhatIf(NamedTuple):
    """An answer.

    `facts` are pairs of a label and a sentence. `rows` are slices to draw, each with a word for
    whose it is; `steps` are how the model stands now and after each step, each with a word.
    """

    headline: str
    tone: Tone
    facts: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, Slice], ...]
    steps: tuple[tuple[str, ModelView], ...]


def what_if_lines(answer: WhatIf, width: int) -> tuple[Line, ...]:
    """The answer in lines of at most `width` cells: the sentence, the map, the rest."""
    lines: list[Line] = [
        (Span(text, answer.tone),) for text in textwrap.wrap(answer.headline, max(8, width))
    ]
    lines += [(), *_map(answer, width), ()]
    for label, text in answer.facts:
        for number, piece in enumerate(textwrap.wrap(text, max(8, width - _LABEL))):
            head = label if number == 0 else ""
            lines.append((Span(head.ljust(_LABEL), "label"), Span(piece)))
    return tuple(lines)


def _map(answer: WhatIf, width: int) -> list[Line]:
    """Holders of each layer, one line below the other for each step."""
    wide = width >= LABEL + 2 * _STATE + 10
    across = width - (_STATE if wide else _RULER)
    edges = {layer for _, part in answer.rows for layer in (part.start, part.end)}
    for _, model in answer.steps:
        counts = model.replicas
        edges |= {at for at in range(1, len(counts)) if counts[at] != counts[at - 1]}
    frames = [
        (name, map_frame(model, (), across, edges=edges, plain=True))
        for name, model in answer.steps
    ]
    lines = [ruler(frames[0][1])]
    lines += [slice_line(frames[0][1], name, part, "█", "mine") for name, part in answer.rows]
    for name, frame in frames:
        glyph, tone = state_mark(frame.model.state)
        state = (Span(f" {glyph} {frame.model.state}", tone),) if wide else ()
        lines.append((*counts_line(frame, name), *state))
    return lines
