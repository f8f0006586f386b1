"""A frame around rows that words can be asked of: `/` opens a line for them at its foot."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.containers import Vertical

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget
    from textual.widgets import Input

    from diffuse_tui.widgets.filter_line import FilterLine


class FilterPanel(Vertical):
    """Opens, follows and takes away the line.

    What is derived from it binds keys to `filter` and `clear_filter`, so that each says whose
    rows it filters.

    Args:
        id: The panel's own.
        hint: What the empty line says of the words that it takes.
    """

    def __init__(self, id: str, hint: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._hint = hint
        self._line: FilterLine | None = None

    @property
    @abstractmethod
    def rows(self) -> Widget:
        """What has the focus when the line has not."""

    @abstractmethod
    def filter_by(self, words: str) -> None:
        """Leave only rows with these words; all of them when there are none."""

    async def action_filter(self) -> None:
        """Type words that leave only some rows."""
        from diffuse_tui.widgets.filter_line import FilterLine

        if self._line is None:
            self._line = FilterLine(self._hint)
            await self.mount(self._line)
        # Not Widget.focus(), which comes later: keys in between went to the rows.
        self.screen.set_focus(self._line)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc is the screen's when there is no filter."""
        del parameters
        return action != "clear_filter" or self._line is not None

    def action_clear_filter(self) -> None:
        """Show every row again."""
        if self._line is not None:
            self._line.action_clear()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Every key filters."""
        message.stop()
        self.filter_by(message.value)

    async def on_filter_line_left(self, message: FilterLine.Left) -> None:
        """Back to the rows."""
        message.stop()
        self.screen.set_focus(self.rows)
        if message.cleared and self._line is not None:
            line, self._line = self._line, None
            self.filter_by("")
            await line.remove()


class FilterBox(FilterPanel):
    """The same around rows that the screen itself filters, whose keys lead here.

    Args:
        id: The box's own.
        hint: As for the panel.
        rows: Selector of the rows in it.
        by: Called with the words.
    """

    def __init__(self, id: str, hint: str, rows: str, by: Callable[[str], None]) -> None:  # noqa: A002
        super().__init__(id, hint)
        self._rows = rows
        self._by = by

    @property
    def rows(self) -> Widget:
        """The rows, by their selector."""
        return self.query_one(self._rows)

    def filter_by(self, words: str) -> None:
        """The screen does it."""
        self._by(words)
