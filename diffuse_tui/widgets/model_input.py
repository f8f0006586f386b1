"""Where a model is named; Tab completes a path as in a shell."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList

from diffuse_tui.presenter.host_questions import common_start


class ModelInput(Input):
    """One line. `paths` are those that begin with what is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete the path", show=False),
        Binding("down", "to_list", "To the proposals", show=False),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(
            placeholder="name, ORG/NAME, path, demo or auto", max_length=400, compact=True, id=id
        )
        self.cursor_blink = False
        self.paths: tuple[str, ...] = ()

    def action_complete(self) -> None:
        """Add what all paths have in common; when that is nothing, Tab moves on."""
        fitting = tuple(path for path in self.paths if path.startswith(self.value))
        longer = common_start(self.value, fitting)
        if longer == self.value:
            self.screen.focus_next()
        else:
            self.value = longer
            self.cursor_position = len(longer)

    def action_to_list(self) -> None:
        """Choose among the proposals."""
        self.screen.set_focus(self.screen.query_one(OptionList))
