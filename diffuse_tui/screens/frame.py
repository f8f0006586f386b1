"""What all full screens have in common: help, one panel at its largest, a word when too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import on
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Static

from diffuse_tui.screens.closing import ClosesOnce

if TYPE_CHECKING:
    from textual.geometry import Size
    from textual.widget import Widget

Result = TypeVar("Result")

LOW = 16
"""Below as many rows, frames and what is said around things would leave no room for them."""


class FramedScreen(ClosesOnce, Screen[Result]):
    """A screen that says so when nothing sensible fits, and shows its panels large with `z`.

    `compose` of the screen has to yield `too_small()` among its widgets.
    """

    LEAST: ClassVar[tuple[int, int]] = (60, 18)
    """Columns and rows below which only the message is shown."""

    WAY_OUT: ClassVar[str] = "Esc goes back"
    ALLOW_IN_MAXIMIZED_VIEW = "Banner, Footer"
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", key_display="F1"),
        Binding("question_mark", "help", "Help", show=False),
        Binding("z", "zoom", "This panel large, and back", show=False),
    ]

    @property
    def help_name(self) -> str:
        """Whose keys the help shows: see `presenter.keys.SECTIONS`."""
        return ""

    @property
    def can_draw(self) -> bool:
        """Whether its widgets are there: they go before the screen does, when the app ends."""
        return self.is_mounted and bool(self.query("#too-small"))

    @staticmethod
    def too_small() -> Static:
        """The message, hidden while there is room."""
        return Static("", id="too-small", markup=False)

    @on(Resize)
    def _resized(self, event: Resize) -> None:
        """Show the message, or what there is room for."""
        self.fit(event.size)

    def fit(self, size: Size) -> bool:
        """Take up a new size; whether it is large enough."""
        width, height = self.LEAST
        small = size.width < width or size.height < height
        self.set_class(small, "-too-small")
        self.set_class(size.height < LOW, "-low")
        if small:
            self.minimize()
            self.query_one("#too-small", Static).update(
                f"This needs {width} x {height} cells;\n"
                f"here are {size.width} x {size.height}.\n{self.WAY_OUT}; Ctrl+Q quits"
            )
        return not small

    def action_help(self) -> None:
        """List the keys that work here."""
        from diffuse_tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.help_name))

    def action_zoom(self) -> None:
        """Give the panel that is in use all the room, or take it back."""
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None and not self.has_class("-too-small"):
            self.maximized = _panel(self.focused)

    def zoom_out(self) -> bool:
        """Back to all panels; False when they are there already."""
        if self.maximized is None:
            return False
        self.minimize()
        return True


def _panel(focused: Widget) -> Widget:
    """The nearest part with a title of its own, which is what one sees as a panel."""
    for widget in focused.ancestors_with_self:
        if getattr(widget, "border_title", None):
            return widget  # type: ignore[return-value]
    return focused
