"""One node: all that is known of it, while it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.node_detail import history_lines, node_lines
from diffuse_tui.presenter.spans import Span
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from diffuse_core.domain.view import NodeView
    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.history import NodeHistory
    from diffuse_tui.presenter.spans import Line


class NodeScreen(LiveScreen[None]):
    """Follows the node `node_id`; `n` and `p` go through `order`, the ids of the table's rows."""

    CRUMB = "Node"
    DEFAULT_CSS = """
    #node {
        height: 1fr; padding: 0 1; scrollbar-size-vertical: 1;
        border: round $border; border-title-color: $primary; border-subtitle-color: $dim;
    }
    #node-text { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,j", "beside(1)", "Next node"),
        Binding("p,k", "beside(-1)", "Previous node"),
        Binding("w", "what_if", "What if it goes"),
        Binding("y", "copy_id", "Copy the id"),
        Binding("enter", "dismiss(None)", "Back", show=False),
    ]

    def __init__(
        self, facts: Facts, node_id: str, history: NodeHistory, order: Sequence[str] = ()
    ) -> None:
        super().__init__(facts)
        self.node_id = node_id
        self._past = history
        self._order = tuple(order)
        self._last: NodeView | None = None

    @property
    def crumbs(self) -> tuple[str, ...]:
        """By way of the table, to this node."""
        return ("Replicas", clean_line(self.node_id[:8]))

    def compose_body(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll(id="node"):
            yield Static(id="node-text")

    def show_facts(self, facts: Facts) -> None:
        """Say what is known now, or that the node is gone and what it was."""
        self.query_one(Banner).crumbs = self.crumbs
        found = self._find()
        lines: list[Line] = []
        if found is not None:
            self._last = found
        else:
            lines += [self._gone(), ()]
        if self._last is not None:
            lines += node_lines(self._last, facts.model)
            region = self.query_one("#node").scrollable_content_region
            room = region.height - len(lines) - 1
            lines += [(), *history_lines(self._last, self._past, max(20, region.width), room)]
        self.query_one("#node-text", Static).update(content(lines))
        place = self._place()
        at = f" · {place + 1} of {len(self._order)}" if place is not None else ""
        box = self.query_one("#node")
        box.border_title = Content(clean_line(f"Node {self.node_id[:8]}", 20))
        box.border_subtitle = f"{'gone' if found is None else found.liveness}{at}"

    def on_resize(self) -> None:
        """Draw graphs for the new width."""
        if self.is_mounted:
            self.call_after_refresh(self.show_facts, self.facts)

    def _find(self) -> NodeView | None:
        nodes = self.facts.view.nodes if self.facts.view is not None else ()
        return next((node for node in nodes if node.node == self.node_id), None)

    def _gone(self) -> Line:
        if self._last is None:
            return (Span(f"✖ no node {clean_line(self.node_id[:8])} is known", "bad"),)
        return (Span("✖ gone: ", "bad"), Span("it is not on the network any more; this was it"))

    def _place(self) -> int | None:
        return self._order.index(self.node_id) if self.node_id in self._order else None

    def action_beside(self, step: int) -> None:
        """Go to the next node of the table that is still there."""
        present = {node.node for node in self.facts.view.nodes} if self.facts.view else set()
        place = self._place()
        at = (place if place is not None else -1) + step
        while 0 <= at < len(self._order) and self._order[at] not in present:
            at += step
        if 0 <= at < len(self._order):
            self.node_id, self._last = self._order[at], None
            self.show_facts(self.facts)
            self.query_one("#node").scroll_home(animate=False)
        else:
            self.notify("No further node in the table.", markup=False)

    def action_copy_id(self) -> None:
        """Hand the full id to the terminal's clipboard."""
        copy(self, self.node_id, "The id")

    def action_what_if(self) -> None:
        """Show what happens when this node goes."""
        from diffuse_tui.screens.what_if import WhatIfScreen

        self.app.push_screen(WhatIfScreen(self.facts, node=self.node_id))
