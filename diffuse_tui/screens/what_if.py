"""What if: some hosts go, or some come; the planner answers while one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widgets import Input, Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import UsageError
from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.replica_filter import node_filter
from diffuse_tui.presenter.spans import Span, plain
from diffuse_tui.presenter.what_if import what_if_lines
from diffuse_tui.presenter.what_if_host import parse_hosts, what_if_host, with_count
from diffuse_tui.presenter.what_if_node import what_if_node
from diffuse_tui.presenter.what_if_rows import COLUMNS, host_cells, hosts
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.filter_panel import FilterBox
from diffuse_tui.widgets.line_table import LineTable
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.typed_line import TypedLine

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import DescendantFocus

    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_tui.presenter.coverage_rows import MapRow
    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.spans import Line

_EXAMPLE = "2 GB"
_NOBODY = (Span("no host holds it", "dim"),)
_NO_MATCH = (Span("no host matches; Esc shows all", "warning"),)


class SizeLine(TypedLine):
    """How much memory the hosts that come have, and how many they are."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "screen.to_answer", "To the answer", show=False),
        Binding("up", "screen.count(1)", "One host more", show=False),
        Binding("down", "screen.count(-1)", "One host less", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(f"{_EXAMPLE}, or 3 x 1.5GiB", most=40, select=True, id="if-size")


class WhatIfScreen(LiveScreen[None]):
    """On the left the hosts, any of which may go, and a line for hosts that come.

    Args:
        facts: the newest picture.
        node: full id of the node to start with; its model is the one asked about.
    """

    CRUMB = "What if"
    AUTO_FOCUS = "#if-nodes"
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (100, "-beside")]  # noqa: RUF012 - Textual's type
    DEFAULT_CSS = """
    WhatIfScreen #if-body { layout: horizontal; height: 1fr; }
    WhatIfScreen #if-left { width: 54; height: 1fr; }
    WhatIfScreen #if-hosts, WhatIfScreen #if-come, WhatIfScreen #if-answer {
        border: round $border-blurred; border-title-color: $label;
        border-subtitle-color: $dim; padding: 0 1;
    }
    WhatIfScreen #if-hosts:focus-within, WhatIfScreen #if-come:focus-within,
    WhatIfScreen #if-answer:focus { border: round $border; border-title-color: $primary; }
    WhatIfScreen #if-hosts { height: 1fr; padding: 0; }
    WhatIfScreen #if-nodes { height: 1fr; }
    WhatIfScreen #if-come { height: 3; }
    WhatIfScreen #if-answer { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; }
    WhatIfScreen #if-said { height: auto; }
    WhatIfScreen.-stacked #if-body { layout: vertical; }
    WhatIfScreen.-stacked #if-left { width: 1fr; height: 45%; min-height: 6; }
    WhatIfScreen.-stacked #if-hosts, WhatIfScreen.-stacked #if-come,
    WhatIfScreen.-stacked #if-answer { border: none; border-top: solid $border-blurred; }
    WhatIfScreen.-stacked #if-hosts:focus-within, WhatIfScreen.-stacked #if-come:focus-within,
    WhatIfScreen.-stacked #if-answer:focus { border: none; border-top: solid $border; }
    WhatIfScreen.-stacked #if-come { height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark a host that goes"),
        Binding("a", "add", "Add hosts", key_display="a"),
        Binding("plus", "count(1)", "One host more", show=False),
        Binding("minus", "count(-1)", "One host less", show=False),
        Binding("x", "unmark", "Mark none", show=False),
        Binding("slash", "filter", "Filter the hosts", show=False),
        Binding("y", "copy", "Copy the answer", show=False),
        Binding("tab", "onward", "Next panel", show=False),
        Binding("shift+tab", "backward", "Panel before", show=False),
        Binding("m", "pick_model", "Model"),
        Binding("f5", "pick_model", "Model", key_display="F5"),
    ]

    def __init__(self, facts: Facts, *, node: str | None = None) -> None:
        super().__init__(facts)
        self._start = node
        self._asked_about: str | None = None
        self._hosts: dict[str, MapRow] = {}
        self._marked: set[str] = set()
        self._come = False
        self._words = ""
        self._answered: object = None
        self._said: tuple[Line, ...] = ()
        for one in facts.view.nodes if facts.view is not None else ():
            if one.node == node and one.model is not None:
                self._asked_about = f"{one.model}@{one.fingerprint}"

    def compose_body(self) -> ComposeResult:
        """Hosts that go, hosts that come, and the answer."""
        with Container(id="if-body"):
            with Vertical(id="if-left"):
                hint = "id, state, 12:18, layer:14 …"
                with FilterBox("if-hosts", hint, "#if-nodes", self._filter) as box:
                    box.border_title = "Hosts that go"
                    box.border_subtitle = "Space marks several · / filters"
                    yield LineTable(COLUMNS, id="if-nodes", empty=_NOBODY)
                with Vertical(id="if-come") as box:
                    box.border_title = "Hosts that come (a)"
                    yield SizeLine()
            with VerticalScroll(id="if-answer"):
                yield Static(id="if-said")

    # --- the picture ------------------------------------------------------------------------

    @property
    def model(self) -> ModelView | None:
        """The model that is asked about: the one chosen here while it is there, else the shown."""
        view = self.facts.view
        for one in view.models if view is not None else ():
            if name_of(one) == self._asked_about:
                return one
        return self.facts.model

    @property
    def _table(self) -> LineTable:
        return self.query_one("#if-nodes", LineTable)

    def show_facts(self, facts: Facts) -> None:
        """Follow the network: who is there, and what would be."""
        self._hosts = hosts(facts.view, self.model)
        self._marked &= set(self._hosts)
        first = self._table.keys == ()
        self._list()
        if first and self._start in self._hosts:
            self._table.move_to(self._start)
        self._answer()

    def _list(self) -> None:
        shown = node_filter(self._words, self.model)
        keys = [key for key, row in self._hosts.items() if shown is None or shown(row.nodes[0])]
        self._table.empty = _NOBODY if shown is None else _NO_MATCH
        self._table.show(keys, self._cells)

    def _cells(self, key: str) -> tuple[Span, ...]:
        return host_cells(self._hosts[key], goes=key in self._marked)

    def _going(self) -> set[str]:
        """The marked ones, else the one under the cursor or from which one came here."""
        if self._marked:
            return self._marked
        if self._start is not None:
            return {self._start}
        key = self._table.cursor_key
        return {key} if key is not None else set()

    def _answer(self) -> None:
        """Ask the planner, unless all it would be asked is as it was."""
        view, model = self.facts.view, self.model
        box = self.query_one("#if-answer")
        width = max(20, box.scrollable_content_region.width)
        typed = self.query_one(SizeLine).value
        asked = typed if self._come else frozenset(self._going())
        held = [
            (key, row.part, row.state, row.nodes[0].sessions, row.nodes[0].capacity)
            for key, row in self._hosts.items()
        ]
        question = (model, held, asked, width)
        if question == self._answered:
            return
        self._answered = question
        lines: tuple[Line, ...] = ((Span("no model on this network yet", "dim"),),)
        box.border_title = "What if"
        if view is not None and model is not None:
            name = clean_line(model.id, 40)
            box.border_title = f"If hosts come · {name}" if self._come else f"If it goes · {name}"
            if self._come:
                lines = self._if_they_come(view, model, typed, width)
            else:
                lines = self._if_they_go(view, model, width)
        self._said = lines
        self.query_one("#if-said", Static).update(content(lines))

    def _if_they_go(self, view: NetworkView, model: ModelView, width: int) -> tuple[Line, ...]:
        going = self._going()
        if not going:
            return ((Span("no live host holds any of it: there is nobody to go", "dim"),),)
        return what_if_lines(what_if_node(view, model, going), width)

    def _if_they_come(
        self, view: NetworkView, model: ModelView, typed: str, width: int
    ) -> tuple[Line, ...]:
        if not typed.strip():
            told = "type how much memory a host has: 500MB, 2 GB, 1.5GiB; or several: 3 x 2 GB"
            return ((Span(told, "dim"),),)
        try:
            size, count = parse_hosts(typed)
        except UsageError as error:
            return ((Span(f"✖ {clean_line(str(error))}", "bad"),),)
        return what_if_lines(what_if_host(view, model, size, count), width)

    def on_resize(self) -> None:
        """Draw for the new width."""
        if self.is_mounted:
            self.call_after_refresh(self._answer)

    # --- asking -----------------------------------------------------------------------------

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The list asks about hosts that go, the line about hosts that come."""
        if isinstance(event.widget, SizeLine | LineTable):
            self._come = isinstance(event.widget, SizeLine)
            self._answer()

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Another host."""
        message.stop()
        if message.key != self._start:
            self._start = None
        self._answer()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Enter and a click mark, as Space does."""
        message.stop()
        self._mark(message.key)

    def action_mark(self) -> None:
        """Let the host under the cursor go with the others that are marked."""
        key = self._table.cursor_key
        if key is not None:
            self.set_focus(self._table)
            self._mark(key)

    def _mark(self, key: str) -> None:
        self._marked ^= {key}
        self._start = None
        self._list()
        self._answer()

    def action_unmark(self) -> None:
        """Mark none."""
        self._marked = set()
        self._list()
        self._answer()

    def action_add(self) -> None:
        """Think of hosts that come."""
        line = self.query_one(SizeLine)
        if not line.value:
            line.value = _EXAMPLE
        self.set_focus(line)

    def action_to_answer(self) -> None:
        """To what was answered."""
        self.set_focus(self.query_one("#if-answer"))

    def action_onward(self) -> None:
        """From each question to its answer, and then to the other question."""
        if isinstance(self.focused, SizeLine | LineTable):
            self.action_to_answer()
        else:
            self.set_focus(self._table if self._come else self.query_one(SizeLine))

    def action_backward(self) -> None:
        """From the answer to its question, and then to the other question."""
        if isinstance(self.focused, SizeLine | LineTable):
            self._come = not self._come
        self.set_focus(self.query_one(SizeLine) if self._come else self._table)

    def action_count(self, step: int) -> None:
        """One host more or less."""
        line = self.query_one(SizeLine)
        self._come = True
        line.value = with_count(line.value or _EXAMPLE, step)
        line.cursor_position = len(line.value)
        self._answer()

    def action_copy(self) -> None:
        """Hand what the mouse has selected, else the answer, to the terminal's clipboard."""
        if selected := self.get_selected_text():
            copy(self, selected, "Selection")
        else:
            copy(self, "\n".join(plain(line) for line in self._said), "The answer")

    # --- filter and model -------------------------------------------------------------------

    async def action_filter(self) -> None:
        """Type words that leave only some hosts."""
        await self.query_one(FilterBox).action_filter()

    def _filter(self, words: str) -> None:
        self._words = words
        self._list()
        self._answer()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Every key asks anew."""
        message.stop()
        self._answer()

    def action_pick_model(self) -> None:
        """Ask about another model."""
        from diffuse_tui.screens.models import ModelScreen

        current = name_of(self.model) if self.model is not None else None
        self.app.push_screen(ModelScreen(self.facts, current), self._picked)

    def _picked(self, name: str | None) -> None:
        if name is not None:
            self._asked_about, self._start = name, None
            self.show_facts(self.facts)
