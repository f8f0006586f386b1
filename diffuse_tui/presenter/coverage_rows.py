"""Who holds what of a model, as rows: one for each holder, or one for all that are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from diffuse_core.domain.plain_text import clean_line, shorten
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.standing import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NodeView

MapState = Literal["claiming", "loading", "ready", "leaving", "suspect"]
"""How a holder is drawn: what it does with its slice, or that it does not answer just now."""

_ORDER: dict[MapState, int] = {
    "ready": 0,
    "suspect": 1,
    "loading": 2,
    "claiming": 3,
    "leaving": 4,
}
_NAME = 8


class MapRow(NamedTuple):
    """One row: a holder, or several of the same slice and state.

    `unfolded` says that a row of several is followed by one for each of them, which are `inner`.
    """

    part: Slice
    state: MapState
    nodes: tuple[NodeView, ...]
    inner: bool = False
    unfolded: bool = False

    @property
    def key(self) -> str:
        """By which a cursor keeps its row."""
        return self.nodes[0].node if len(self.nodes) == 1 else f"{self.part} {self.state}"

    @property
    def me(self) -> bool:
        """Whether it is this node's."""
        return self.nodes[0].me

    @property
    def name(self) -> str:
        """The holder's short id, or how many there are."""
        if len(self.nodes) == 1:
            return clean_line(self.nodes[0].short, _NAME)
        return f"{'▾' if self.unfolded else ''}×{len(self.nodes)}"


def holder_rows(model: ModelView, nodes: Iterable[NodeView]) -> tuple[MapRow, ...]:
    """One row for each live holder, in slice order; of equal ones this node's comes first."""
    rows = [
        MapRow(node.slice, _state(node), (node,))
        for node in nodes
        if node.slice is not None and holds(node, model)
    ]
    rows.sort(key=_place)
    return tuple(rows)


def _state(node: NodeView) -> MapState:
    if node.liveness == "suspect":
        return "suspect"
    state: HoldState = node.state or "claiming"
    return state


def _place(row: MapRow) -> tuple[int, int, int, bool, str]:
    node, part = row.nodes[0], row.part
    return part.start, part.end, _ORDER[row.state], not node.me, node.node


def grouped(rows: Sequence[MapRow], unfolded: frozenset[str] = frozenset()) -> tuple[MapRow, ...]:
    """The rows of equal holders joined, but for this node's; those of `unfolded` keys follow."""
    found: list[MapRow] = []
    same: list[MapRow] = []
    for row in rows:
        if same and (row.part, row.state) != (same[0].part, same[0].state):
            found += _joined(same, unfolded)
            same = []
        if row.me:
            found.append(row)
        else:
            same.append(row)
    return (*found, *_joined(same, unfolded))


def _joined(same: Sequence[MapRow], unfolded: frozenset[str]) -> tuple[MapRow, ...]:
    if len(same) < 2:
        return tuple(same)
    nodes = tuple(row.nodes[0] for row in same)
    whole = MapRow(same[0].part, same[0].state, nodes)
    if whole.key not in unfolded:
        return (whole,)
    return (whole._replace(unfolded=True), *(row._replace(inner=True) for row in same))


def layer_text(model: ModelView, rows: Iterable[MapRow], layer: int, width: int) -> str:
    """Who holds one layer, and what is weak: `layer 14: 3 holders (1a2b, 3c4d, ...) · ...`.

    Args:
        model: the model.
        rows: those of `holder_rows`.
        layer: the layer, 0..layers-1.
        width: cells at most; names give way first.
    """
    here = [row for row in rows if row.part.start <= layer < row.part.end]
    ready = [row for row in here if row.nodes[0].state == "ready"]
    count = counted(len(ready), "holder") if ready else "held by nobody"
    head = f" layer {layer}: {count}"
    others = "".join(
        f" · {number} {state}"
        for state in ("loading", "claiming", "leaving")
        if (number := sum(row.nodes[0].state == state for row in here))
    )
    tail = others
    if model.weakest is not None:
        tail += f" · weakest {model.weakest}: x{model.min_replicas}"
    names = _names([row.name for row in ready], width - len(head) - len(tail))
    return shorten(f"{head}{names}{tail}", width)


def _names(names: Sequence[str], room: int) -> str:
    """As many names as fit: ` (1a2b, 3c4d, ...)`; empty when not even one does."""
    told = ""
    for number, name in enumerate(names, 1):
        more = ", ..." if number < len(names) else ""
        longer = f"{told}, {name}" if told else name
        if len(f" ({longer}{more})") > room:
            return f" ({told}, ...)" if told else ""
        told = longer
    return f" ({told})" if told else ""
