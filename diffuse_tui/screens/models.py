"""The model picker: all models of the network, kept up to date while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.model_rows import COLUMNS, listed, model_cells, model_sentence
from diffuse_tui.presenter.spans import Span
from diffuse_tui.screens.closing import ClosesOnce
from diffuse_tui.screens.follower import Follower
from diffuse_tui.widgets.filter_panel import FilterBox
from diffuse_tui.widgets.line_table import LineTable
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.facts import Facts

_NONE = (Span("no model on this network yet; Esc, then F7: host one here", "dim"),)
_NO_MATCH = (Span("no model matches these words; Esc shows all", "warning"),)


class ModelScreen(Follower, ClosesOnce, ModalScreen[str | None]):
    """Gives back the `id@fingerprint` that was chosen, or None.

    Args:
        facts: the newest picture.
        current: `id@fingerprint` of the model that is asked about now; without it, the one shown.
    """

    AUTO_FOCUS = "#models"
    DEFAULT_CSS = """
    ModelScreen { align: center middle; background: $background 70%; }
    #model-box {
        width: 92; max-width: 95%; height: auto; max-height: 90%;
        border: round $border; background: $surface; padding: 0 1;
        border-title-color: $primary; border-subtitle-color: $dim;
    }
    #models { height: auto; max-height: 20; background: $surface; }
    #model-said { height: 2; padding: 0 1; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close"),
        Binding("slash", "filter", "Filter the models"),
    ]

    def __init__(self, facts: Facts, current: str | None) -> None:
        super().__init__()
        self._facts = facts
        self._current = current
        self._models: dict[str, ModelView] = {}
        self._words = ""

    def compose(self) -> ComposeResult:
        """A table, and a sentence about the model under the cursor."""
        hint = "name, state, dtype, answers … (! inverts)"
        with FilterBox("model-box", hint, "#models", self._filter) as box:
            box.border_title = "Models on this network"
            box.border_subtitle = "Enter chooses · / filters · Esc closes"
            yield LineTable(COLUMNS, id="models", empty=_NONE)
            yield Static(id="model-said")

    def on_mount(self) -> None:
        """Start on the model that is shown."""
        self._show()
        if self._current is not None:
            self._table.move_to(self._current)
        self._say()

    def show(self, facts: Facts) -> None:
        """A newer picture came."""
        self._facts = facts
        # Its widgets go before it does, when the app ends.
        if self.is_mounted and self.query("#models"):
            self._show()

    @property
    def _table(self) -> LineTable:
        return self.query_one("#models", LineTable)

    def _show(self) -> None:
        table = self._table
        everything = self._facts.view.models if self._facts.view is not None else ()
        self._models = listed(everything, self._words, table.sort)
        table.empty = _NO_MATCH if everything else _NONE
        table.show(list(self._models), self._cells)
        some = f"{len(self._models)} of {len(everything)}" if self._words else str(len(everything))
        self.query_one("#model-box").border_title = f"Models on this network · {some}"
        self._say()

    def _cells(self, key: str) -> tuple[Span, ...]:
        return model_cells(self._models[key], current=key == self._shown)

    @property
    def _shown(self) -> str | None:
        model = self._facts.model
        return self._current or (name_of(model) if model is not None else None)

    def _say(self) -> None:
        said = self.query_one("#model-said", Static)
        model = self._models.get(self._table.cursor_key or "")
        lines = model_sentence(model, max(20, said.size.width - 2)) if model is not None else ()
        said.update(content(lines))

    def on_resize(self) -> None:
        """Say it in what room there is."""
        self.call_after_refresh(self._say)

    # --- what the table and the filter tell ---------------------------------------------------

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Another model."""
        message.stop()
        self._say()

    def on_line_table_sorted(self, message: LineTable.Sorted) -> None:
        """Another order."""
        message.stop()
        self._show()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Take the choice."""
        message.stop()
        self.dismiss(message.key)

    async def action_filter(self) -> None:
        """Type words that leave only some models."""
        await self.query_one(FilterBox).action_filter()

    def _filter(self, words: str) -> None:
        self._words = words
        self._show()
