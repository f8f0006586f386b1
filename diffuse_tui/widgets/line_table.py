"""A table that draws lines: only the rows on the screen are ever made, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from diffuse_tui.presenter.columns import (
    column_at,
    heading_line,
    neighbour,
    pages,
    row_line,
    turned,
)
from diffuse_tui.presenter.spans import Span, plain
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.events import Click

    from diffuse_tui.presenter.columns import Column, Page, Sort
    from diffuse_tui.presenter.spans import Line

GUTTER = 1
"""Cells left of a row, where the mark of the cursor stands."""

_CURSOR = "▸"

_MARK = 2
"""Cells at the end of the heading that tell of columns which are not shown."""


class LineTable(ScrollView, can_focus=True):
    """Rows known by keys, drawn from cells that are asked for when a row is on the screen.

    The cursor stays on its key when rows come, go or change places, and the table stays where it
    was scrolled to as long as the cursor remains in sight. The owner sorts: it answers `Sorted`
    with `show`.

    Args:
        columns: The columns; Left and Right show those that do not fit.
        id: The widget's id.
        empty: What stands in the place of rows when there are none.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line-table--cursor"}
    DEFAULT_CSS = """
    LineTable { overflow-x: hidden; scrollbar-size-vertical: 1; }
    LineTable > .line-table--cursor { background: $panel; }
    LineTable:focus > .line-table--cursor {
        background: $block-cursor-background; color: $block-cursor-foreground;
    }
    LineTable:focus:nocolor > .line-table--cursor { text-style: reverse; }
    """
    # Only what is worth a line in the command palette has a description.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "leap(-1.0)", show=False),
        Binding("pagedown", "leap(1.0)", show=False),
        Binding("ctrl+u", "leap(-0.5)", show=False),
        Binding("ctrl+d", "leap(0.5)", show=False),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("left", "turn(-1)", "Columns before", show=False),
        Binding("right", "turn(1)", "Columns after", show=False),
        Binding("enter", "select", "Open", show=False),
        Binding("less_than_sign", "sort_beside(-1)", "Sort by the column before", show=False),
        Binding("greater_than_sign", "sort_beside(1)", "Sort by the next column", show=False),
        Binding("S", "invert", "Invert the sort", show=False),
        *(Binding(str(number), f"sort_by({number})", show=False) for number in range(1, 10)),
    ]

    class _OfRow(Message):
        def __init__(self, table: LineTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> LineTable:
            """The table it comes from."""
            return self.table

    class RowSelected(_OfRow):
        """Enter, a double click, or a click on the row of the cursor."""

    class RowHighlighted(_OfRow):
        """The cursor came to another row."""

    class Sorted(Message):
        """Another sort was chosen (None: the owner's own order): please `show` the rows in it."""

        def __init__(self, table: LineTable, sort: Sort | None) -> None:
            super().__init__()
            self.table = table
            self.sort = sort

        @property
        def control(self) -> LineTable:
            """The table it comes from."""
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        empty: Line = (),
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.empty = empty
        self.sort: Sort | None = None
        self._painter = Painter(self)
        self._keys: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._cells: Callable[[str], Sequence[Span]] = lambda key: ()
        self._key: str | None = None
        self._page = 0
        self._pages: tuple[Page, ...] = ((),)

    # --- what the owner uses ----------------------------------------------------------------

    def show(self, keys: Sequence[str], cells: Callable[[str], Sequence[Span]]) -> None:
        """Show a row for each of `keys`, in this order.

        Args:
            keys: One for each row, all different.
            cells: Gives a row's cells, one for each column; called for rows that are drawn.
        """
        in_sight, row = self._in_sight(self.cursor_row), self.cursor_row
        self._keys, self._cells = tuple(keys), cells
        self._places = {key: place for place, key in enumerate(self._keys)}
        height = max(1, len(self._keys)) + 1
        if self.virtual_size.height != height:
            self.virtual_size = Size(self._width, height)
        if self._key is not None and self._key not in self._places:
            self._key = None
            if self._keys:
                self._put(min(row, len(self._keys) - 1))
        if in_sight and self._key is not None:
            self._bring_to_sight(self.cursor_row)
        self.refresh()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all rows, in order."""
        return self._keys

    @property
    def cursor_row(self) -> int:
        """Where the cursor is; 0 until it was moved, so that it stays at the top till then."""
        return self._places.get(self._key, 0) if self._key is not None else 0

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor; None without rows."""
        return self._keys[self.cursor_row] if self._keys else None

    def move_to(self, key: str) -> None:
        """Put the cursor on a row, and show it."""
        if key in self._places:
            self._move(self._places[key])

    def row_text(self, key: str) -> str:
        """A row's shown columns as plain text."""
        return plain(row_line(self.columns, self._pages[self._page], self._cells(key))).rstrip()

    # --- moving -----------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _height(self) -> int:
        """Rows that are seen at once."""
        return max(1, self.scrollable_content_region.height - 1)

    def _in_sight(self, row: int) -> bool:
        return 0 <= row - self.scroll_offset.y < self._height

    def _bring_to_sight(self, row: int) -> None:
        top = min(max(self.scroll_offset.y, row - self._height + 1), row)
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

    def _put(self, row: int) -> None:
        key = self._keys[row]
        if key != self._key:
            self._key = key
            self.post_message(self.RowHighlighted(self, key))

    def _move(self, row: int) -> None:
        if self._keys:
            self._put(max(0, min(len(self._keys) - 1, row)))
            self._bring_to_sight(self.cursor_row)
            self.refresh()

    def action_step(self, rows: int) -> None:
        """Up or down by rows."""
        self._move(self.cursor_row + rows)

    def action_leap(self, heights: float) -> None:
        """Up or down by a part of what is seen at once."""
        rows = max(1, int(abs(heights) * self._height))
        self._move(self.cursor_row + (rows if heights > 0 else -rows))

    def action_first(self) -> None:
        """To the first row."""
        self._move(0)

    def action_last(self) -> None:
        """To the last row."""
        self._move(len(self._keys) - 1)

    def action_select(self) -> None:
        """Tell the owner of the row under the cursor."""
        key = self.cursor_key
        if key is not None:
            self._put(self.cursor_row)
            self.post_message(self.RowSelected(self, key))

    def action_turn(self, step: int) -> None:
        """Show other columns."""
        self._page = max(0, min(len(self._pages) - 1, self._page + step))
        self.refresh()

    # --- sorting ----------------------------------------------------------------------------

    def _sort(self, sort: Sort | None) -> None:
        if sort != self.sort:
            self.sort = sort
            self.refresh()
            self.post_message(self.Sorted(self, sort))

    def action_sort_by(self, number: int) -> None:
        """Sort by the column of that number, from 1; once more inverts, then the own order."""
        if number <= len(self.columns):
            self._sort(turned(self.columns, self.sort, self.columns[number - 1].name))

    def action_sort_beside(self, step: int) -> None:
        """Sort by the column beside that by which it is sorted."""
        self._sort(neighbour(self.columns, self.sort, step))

    def action_invert(self) -> None:
        """Turn the order round."""
        if self.sort is not None:
            self._sort(self.sort._replace(falling=not self.sort.falling))

    # --- the mouse --------------------------------------------------------------------------

    def on_click(self, event: Click) -> None:
        """A heading sorts, a row gets the cursor, the row of the cursor is selected."""
        at = event.get_content_offset(self)
        if at is None:
            return
        if at.y == 0:
            self._click_heading(at.x)
            return
        row = at.y - 1 + self.scroll_offset.y
        if row >= len(self._keys) or self.text_selection is not None:
            return
        there = self._key == self._keys[row]
        self._move(row)
        if there or event.chain == 2:
            self.action_select()

    def _click_heading(self, x: int) -> None:
        if len(self._pages) > 1 and x >= self._width - _MARK:
            self._page = (self._page + 1) % len(self._pages)
            self.refresh()
            return
        index = column_at(self._pages[self._page], x - GUTTER)
        if index is not None:
            self._sort(turned(self.columns, self.sort, self.columns[index].name))

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text of the rows that the mouse was drawn over."""
        first = selection.start or Offset(0, 0)
        last = selection.end or Offset(self._width, len(self._keys) - 1)
        rows = self._keys[max(0, first.y) : last.y + 1]
        text = "\n".join(" " * GUTTER + self.row_text(key) for key in rows)
        taken = Selection(Offset(first.x, 0), Offset(last.x, last.y - first.y))
        return taken.extract(text), "\n"

    # --- drawing ----------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        self._lay_out()

    def _lay_out(self) -> None:
        width = self._width - GUTTER
        found = pages(self.columns, width)
        if len(found) > 1:
            found = pages(self.columns, width - _MARK)
        self._pages = found
        self._page = min(self._page, len(found) - 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the heading, or the row that is `y` lines below the top."""
        width = self._width
        if y == 0:
            return self._painter.strip(self._heading(width), width)
        row = y - 1 + self.scroll_offset.y
        if row < len(self._keys):
            return self._row(row, width)
        line = (Span(" " * GUTTER), *self.empty) if not self._keys and y == 1 else ()
        return self._painter.strip(line, width)

    def _heading(self, width: int) -> Line:
        line = heading_line(self.columns, self._pages[self._page], self.sort)
        if len(self._pages) == 1:
            return (Span(" " * GUTTER), *line)
        room = width - GUTTER - _MARK
        blanks = " " * max(0, room - len(plain(line)))
        before = "◂" if self._page else " "
        after = "▸" if self._page < len(self._pages) - 1 else " "
        return (Span(" " * GUTTER), *line, Span(blanks), Span(f"{before}{after}", "accent"))

    def _row(self, row: int, width: int) -> Strip:
        line = row_line(self.columns, self._pages[self._page], self._cells(self._keys[row]))
        if row == self.cursor_row:
            strip = self._under_cursor(line, width)
        else:
            strip = self._painter.strip((Span(" " * GUTTER), *line), width)
        selection = self.text_selection
        span = selection.get_span(row) if selection is not None else None
        if span is not None:
            start, end = span[0], width if span[1] == -1 else span[1]
            style = self.screen.get_component_rich_style("screen--selection")
            parts = strip.divide([start, end, width])
            strip = Strip.join([parts[0], _over(parts[1], style), *parts[2:]])
        return strip.apply_offsets(0, row)

    def _under_cursor(self, line: Line, width: int) -> Strip:
        style = self.get_component_rich_style("line-table--cursor")
        mark = Span(_CURSOR if self.has_focus else " ")
        segments = [
            Segment(span.text, style + self._painter.own_style(span.tone))
            for span in (mark, *line)
        ]
        return Strip(segments).adjust_cell_length(width, style)


def _over(strip: Strip, style: Style) -> Strip:
    """`strip` on the background of `style`; the text keeps its colours."""
    ground = Style(bgcolor=style.bgcolor)
    return Strip([Segment(text, own + ground if own else ground) for text, own, _ in strip])
