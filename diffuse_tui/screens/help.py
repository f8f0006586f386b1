"""The help screen: the keys of the screen it was opened from, and what the map's shapes mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget

from diffuse_tui.presenter.keys import help_lines
from diffuse_tui.screens.closing import ClosesOnce
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.content import Content
    from textual.geometry import Size


class _Keys(Widget):
    """The text, in as many lines as it needs at the width it gets."""

    DEFAULT_CSS = "_Keys { height: auto; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._of = name

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as lines."""
        del container, viewport
        return len(help_lines(self._of, width))

    def render(self) -> Content:
        """All of it."""
        return content(help_lines(self._of, self.size.width))


class HelpScreen(ClosesOnce, ModalScreen[None]):
    """Scrolls; Esc, ? or q closes it.

    Args:
        name: The screen or page whose keys are shown: see `presenter.keys.SECTIONS`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss(None)", "Close"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
        Binding("ctrl+d", "scroll('page_down')", show=False),
        Binding("ctrl+u", "scroll('page_up')", show=False),
        Binding("g", "scroll('home')", show=False),
        Binding("G", "scroll('end')", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._of = name

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll(id="help") as box:
            box.border_title = "Help"
            box.border_subtitle = "Esc closes"
            yield _Keys(self._of)

    def action_scroll(self, where: str) -> None:
        """Scroll as the arrow keys do."""
        box = self.query_one("#help", VerticalScroll)
        getattr(box, f"action_scroll_{where}" if "page" not in where else f"action_{where}")()
