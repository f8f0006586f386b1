"""Rows of an answer on the screen: looks become colours here, and text can be selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from diffuse_tui.presenter.rich_text import Look, cells

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.style import Style as RichStyle
    from textual.geometry import Size
    from textual.selection import Selection

    from diffuse_tui.presenter.rich_text import Row

_ATTRIBUTES = {
    Look.STRONG: "bold",
    Look.EMPHASIS: "italic",
    Look.STRIKE: "strike",
    Look.UNDERLINE: "underline",
    Look.LINK: "underline",
    Look.COMMENT: "italic",
    Look.KEYWORD: "bold",
}
_COLOURS = {
    Look.DIM: "$dim",
    Look.COMMENT: "$dim",
    Look.CODE: "$accent",
    Look.LINK: "$secondary",
    Look.HEADING: "$primary",
    Look.KEYWORD: "$secondary",
    Look.STRING: "$success",
    Look.NUMBER: "$warning",
    Look.NAME: "$primary",
}
"""In the theme's own variables; the first that holds decides."""

_MAX_STRIPS = 256
"""Rows drawn that are kept, more than any screen shows of one widget."""


def style_text(look: Look) -> str:
    """How `look` is drawn, as Textual writes styles."""
    found = [word for each, word in _ATTRIBUTES.items() if look & each]
    found += [colour for each, colour in _COLOURS.items() if look & each][:1]
    return " ".join(dict.fromkeys(found))


class RowsWidget(Widget):
    """Draws rows one at a time, so that only what is seen costs anything.

    Those who derive from it tell the rows at a width.
    """

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._painted_for: object = None
        self._styles_of: dict[Look, RichStyle] = {}
        self._strips: dict[int, tuple[Row, int, Strip]] = {}

    def rows_at(self, width: int) -> list[Row]:
        """All rows in `width` cells."""
        raise NotImplementedError

    def forget(self) -> None:
        """Give up all rows."""

    def on_unmount(self) -> None:
        """Rows are many small things, and those around hold on to this widget for a while."""
        self.forget()
        self._strips.clear()
        self._styles_cache.clear()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """All there is."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many as there are rows."""
        return len(self.rows_at(width))

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        width = self.content_size.width
        rows = self.rows_at(width)
        if y >= len(rows):
            return Strip.blank(width, self.visual_style.rich_style)
        if self.text_selection is not None:
            return self.selected(self.painted(rows[y]), y, rows[y], width)
        self._check_styles()
        # When an answer grows, all rows on the screen move: most are drawn again as they were.
        kept = self._strips.get(y)
        if kept is None or kept[0] is not rows[y] or kept[1] != width:
            if len(self._strips) >= _MAX_STRIPS:
                self._strips.clear()
            strip = self.selected(self.painted(rows[y]), y, rows[y], width)
            kept = self._strips[y] = (rows[y], width, strip)
        return kept[2]

    def painted(self, row: Row) -> Strip:
        """The row in its colours."""
        self._check_styles()
        return Strip([Segment(run.text, self._style(run.look)) for run in row.runs])

    def _check_styles(self) -> None:
        look_of = (self.visual_style, self.app.theme)
        if look_of != self._painted_for:
            self._painted_for, self._styles_of = look_of, {}
            self._strips.clear()

    def selected(self, strip: Strip, y: int, row: Row, width: int, left: int = 0) -> Strip:
        """The part of a row that is seen, with what is selected marked and what can be."""
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            text = row.text
            start = cells(text[: span[0]])
            end = strip.cell_length if span[1] == -1 else cells(text[: span[1]])
            mark = self.screen.get_component_rich_style("screen--selection")
            strip = Strip.join(
                [
                    strip.crop(0, start),
                    strip.crop(start, end).apply_style(mark),
                    strip.crop(end, None),
                ]
            )
        base = self.visual_style.rich_style
        shown = strip.crop_extend(left, left + width, base) if left else strip
        return shown.adjust_cell_length(width, base).apply_offsets(left, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is selected, with the line breaks of the text and not of the screen."""
        return selected_text(self.rows_at(self.content_size.width), selection), "\n"

    def _style(self, look: Look) -> RichStyle:
        style = self._styles_of.get(look)
        if style is None:
            base, own = self.visual_style, style_text(look)
            parsed = base + self.app.stylesheet.parse_style(own) if own else base
            style = self._styles_of[look] = parsed.rich_style
        return style


def selected_text(rows: Iterable[Row], selection: Selection, first: int = 0) -> str:
    """The text of `rows` within `selection`, from the row `first` on."""
    found: list[str] = []
    for y, row in enumerate(rows):
        span = selection.get_span(y)
        if span is None or y < first:
            continue
        start, end = span
        text = row.text
        if row.glue != "\n":
            start = max(start, row.indent)
        found += [
            row.glue if found else "",
            text[start : len(text) if end == -1 else end].rstrip(),
        ]
    return "".join(found)
