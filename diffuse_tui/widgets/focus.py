"""Focus that pages rely on: one step with the page, whatever messages still come late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.events import Hide
    from textual.widget import Widget as _Widget
else:
    # A second Widget among the bases would hide the styles and bindings of the first.
    _Widget = object


class PageTarget(_Widget):
    """What a page focuses when it is shown; the screen alone takes the focus away again.

    Textual tells a widget of being hidden through its queue. When pages change faster than that
    is read, the word comes after the widget was shown and focused again.
    """

    def on_hide(self, event: Hide) -> None:
        """Keep the focus: the page that hid this may be the one before."""
        event.prevent_default()
