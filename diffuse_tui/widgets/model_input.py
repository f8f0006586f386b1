"""Where a model is named, and the proposals below: Tab completes a path as in a shell."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from diffuse_tui.presenter.host_questions import common_start
from diffuse_tui.widgets.choices import Choices
from diffuse_tui.widgets.typed_line import TypedLine


class ModelInput(TypedLine):
    """One line. `paths` are those that begin with what is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete the path", show=False),
        Binding("down", "to_list", "To the proposals", show=False),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__("name, ORG/NAME, path, demo or auto", most=400, select=True, id=id)
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
        proposals = self.screen.query_one(Proposals)
        if proposals.option_count:
            proposals.highlighted = proposals.highlighted or 0
            self.screen.set_focus(proposals)


class Proposals(Choices):
    """What may be named; up from the first goes back to where it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "before", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
    ]

    def action_before(self) -> None:
        """The proposal before, or the text."""
        if self.highlighted:
            self.action_cursor_up()
        else:
            self.screen.set_focus(self.screen.query_one(ModelInput))
