"""The line in which words are typed that leave only some rows: `/` opens it, Esc clears it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from diffuse_tui.widgets.typed_line import TypedLine

MOST_CHARS = 200


class FilterLine(TypedLine):
    """One line of text; `Input.Changed` tells of every key.

    Import it when it is first needed: an Input is not cheap.
    """

    DEFAULT_CSS = """
    FilterLine, FilterLine:focus {
        height: 1; border: none; border-left: outer $primary; padding: 0 1; background: $panel;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Clear the filter", show=False),
        Binding("enter,down,up,tab", "leave", "To the rows", show=False),
    ]

    class Left(Message):
        """The rows are to have the focus; when `cleared`, the line is not needed any more."""

        def __init__(self, line: FilterLine, *, cleared: bool) -> None:
            super().__init__()
            self.line = line
            self.cleared = cleared

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder, most=MOST_CHARS)

    def action_clear(self) -> None:
        """Show everything again."""
        self.value = ""
        self.post_message(self.Left(self, cleared=True))

    def action_leave(self) -> None:
        """Keep the words, and go to what they leave."""
        self.post_message(self.Left(self, cleared=not self.value.strip()))
