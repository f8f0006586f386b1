"""Copying: text goes to the terminal's clipboard, and the app says what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from textual.widget import Widget


class Copied(Message):
    """Text went to the clipboard; please say so, and keep it where that may not have worked."""

    def __init__(self, text: str, what: str) -> None:
        super().__init__()
        self.text = text
        self.what = what


def copy(widget: Widget, text: str, what: str) -> None:
    """Send `text` to the terminal's clipboard; `what` names it to the user."""
    widget.app.copy_to_clipboard(text)
    widget.post_message(Copied(text, what))
