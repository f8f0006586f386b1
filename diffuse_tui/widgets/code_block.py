"""Code of an answer: its language, its lines, and a way to copy them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.highlight import highlighted, language_of, prepare
from diffuse_tui.presenter.rich_text import Look, Row, Run, wrap
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.looks import RowsWidget, selected_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.events import Click, MouseScrollLeft, MouseScrollRight
    from textual.selection import Selection
    from textual.strip import Strip

_COPY = " copy "
_MAX_NAME = 40
_STEP = 8
_AT_ONCE = 60
"""Lines that are given colours before other things get their turn."""


class CodeBlock(RowsWidget, can_focus=True):
    """A head that names the language, and the code; long lines are reached sideways."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "copy", "Copy the code"),
        Binding("w", "wrap", "Wrap"),
        Binding("left,h", "sideways(-1)", "Left", show=False),
        Binding("right,l", "sideways(1)", "Right", show=False),
    ]

    def __init__(self, info: str) -> None:
        super().__init__(classes="code-block")
        self.language = clean_line(language_of(info))
        self._name = clean_line(info, _MAX_NAME) or "code"
        self._lines: list[str] = []
        self._partial = ""
        self._looks: list[tuple[Run, ...]] = []
        self._colours: Iterator[tuple[Run, ...]] | None = None
        self._asked = False
        self._complete = False
        self._wraps = False
        self._left = 0  # Cells that are scrolled out at the left.
        self._rows: list[Row] = []  # The head, the lines, the line that grows.
        self._settled = 0
        self._width = 0

    @property
    def code(self) -> str:
        """The lines so far, as the model wrote them."""
        return "\n".join([*self._lines, self._partial] if self._partial else self._lines)

    def add(self, lines: list[str]) -> None:
        """More lines, already without control characters."""
        self._lines += lines
        self._partial = ""
        self._extend(len(self._lines) - len(lines))
        self.refresh(layout=True)

    def show_tail(self, partial: str) -> None:
        """The line that grows."""
        if partial != self._partial:
            before = len(self._rows)
            self._partial = partial
            self._extend(len(self._lines))
            self.refresh(layout=len(self._rows) != before)

    def complete(self) -> None:
        """Nothing follows: colours may come, when it is seen."""
        self._partial = ""
        self._complete = True
        self._extend(len(self._lines))
        self.refresh(layout=True)

    def rows_at(self, width: int) -> list[Row]:
        """The head, then the code; line for line where it is not wrapped."""
        if width != self._width:
            self._width, self._rows, self._settled = width, [Row(())], 1
            self._extend(0)
        return self._rows

    def forget(self) -> None:
        """Give up the code."""
        self._lines, self._looks, self._rows, self._colours = [], [], [], None
        self._width = 0

    def _extend(self, number: int) -> None:
        """Rows for the lines from `number` on, which have none yet, and for the one that grows."""
        if not self._width:
            return
        del self._rows[self._settled :]
        self._rows[0] = Row((Run(self._title(self._width), Look.DIM),))
        for each in range(number, len(self._lines)):
            known = each < len(self._looks)
            self._rows += self._cut(self._looks[each] if known else (Run(self._lines[each]),))
        self._settled = len(self._rows)
        if not self._complete:
            self._rows += self._cut((Run(f"{self._partial}▍"),))

    def _cut(self, runs: tuple[Run, ...]) -> list[Row]:
        return wrap(runs, self._width) if self._wraps else [Row(runs)]

    def _title(self, width: int) -> str:
        count = len(self._lines)
        name = f"{self._name} · {count} line{'' if count == 1 else 's'}"
        return f"{name[: max(0, width - len(_COPY))]:<{max(0, width - len(_COPY))}}{_COPY}"

    def render_line(self, y: int) -> Strip:
        """Draw the head or one row of code; the first time, see to its colours."""
        if self._complete and not self._asked:
            self._asked = True
            self.call_later(self._prepare)
        width = self.content_size.width
        rows = self.rows_at(width)
        if y >= len(rows):
            return super().render_line(y)
        strip = self.painted(rows[y])
        left = 0 if y == 0 or self._wraps else self._left
        more = strip.cell_length > left + width
        drawn = self.selected(strip, y, rows[y], width, left)
        if not more or width < 2:
            return drawn
        mark = self.painted(Row((Run("›", Look.DIM),)))
        return drawn.join([drawn.crop(0, width - 1), mark])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Code that is selected, never the head."""
        return selected_text(self.rows_at(self.content_size.width), selection, first=1), "\n"

    def _prepare(self) -> None:
        prepare(self.language)
        self._colours = highlighted(self._lines, self.language)
        self.call_later(self._colour)

    def _colour(self) -> None:
        if self._colours is None:
            return
        some = list(islice(self._colours, _AT_ONCE))
        known = len(self._looks)
        self._looks += some[: len(self._lines) - known]
        if self._wraps:
            self._width = 0
        else:
            self._rows[1 + known : 1 + len(self._looks)] = map(Row, self._looks[known:])
        self.refresh()
        if len(some) == _AT_ONCE:
            self.call_later(self._colour)
        else:
            self._colours = None

    def action_copy(self) -> None:
        """Hand the code to the terminal's clipboard."""
        copy(self, self.code, f"{len(self._lines)} lines of {self.language or 'code'}")

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them again."""
        self._wraps, self._left, self._width = not self._wraps, 0, 0
        self.refresh(layout=True)

    def action_sideways(self, steps: int) -> None:
        """Show what is further right or left."""
        widest = max(map(cell_len, self._lines), default=0)
        most = max(0, widest - self.content_size.width + 1)
        self._left = 0 if self._wraps else max(0, min(most, self._left + steps * _STEP))
        self.refresh()

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        """As the key does."""
        event.stop()
        self.action_sideways(1)

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        """As the key does."""
        event.stop()
        self.action_sideways(-1)

    def on_click(self, event: Click) -> None:
        """The word `copy` in the head does what it says."""
        place = event.get_content_offset(self)
        copies = self.content_size.width - len(_COPY)
        if place is not None and place.y == 0 and place.x >= copies:
            event.stop()
            self.action_copy()
