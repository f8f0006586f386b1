"""The model picker."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from diffuse_tui.presenter.standing import model_lines
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import NetworkView


class ModelScreen(ModalScreen[str | None]):
    """Gives back the fingerprint that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Close")]

    def __init__(self, view: NetworkView, current: str | None) -> None:
        super().__init__()
        self._view = view
        self._current = current

    def compose(self) -> ComposeResult:
        """All models, each with its state sentence."""
        options = [
            Option(content(model_lines(model)), id=f"m{index}")
            for index, model in enumerate(self._view.models)
        ]
        picker = OptionList(*options, id="models", markup=False)
        picker.border_title = "Models on this network"
        picker.border_subtitle = "Enter chooses · Esc closes"
        yield picker

    def on_mount(self) -> None:
        """Start on the model that is shown."""
        for index, model in enumerate(self._view.models):
            if model.fingerprint == self._current:
                self.query_one(OptionList).highlighted = index

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Take the choice."""
        message.stop()
        self.dismiss(self._view.models[message.option_index].fingerprint)
