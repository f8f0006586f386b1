"""Copying: text goes to the terminal, and what became of it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widget import Widget

MAX_TERMINAL = 74_000
"""Characters beyond which common terminals drop what they are sent."""


def copy(widget: Widget, text: str, what: str) -> None:
    """Send `text` to the terminal's clipboard and say so; `what` names it to the user."""
    widget.app.copy_to_clipboard(text)
    doubt = "some terminals ignore it"
    if len(text) > MAX_TERMINAL:
        doubt = f"{len(text):,} characters are more than most terminals take"
    widget.notify(f"{what} sent to the terminal's clipboard (OSC 52; {doubt})", markup=False)
