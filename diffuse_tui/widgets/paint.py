"""Tones become colours here, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.content import Content
from textual.strip import Strip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.style import Style
    from textual.widget import Widget

    from diffuse_tui.presenter.spans import Line, Tone

TONES: dict[Tone, str] = {
    "plain": "",
    "dim": "$dim",
    "strong": "bold $primary",
    "good": "$success",
    "warning": "$warning",
    "bad": "bold $error",
    "accent": "$accent",
    "alarm": "bold $background on $error",
    "label": "$label",
    "mine": "bold $primary",
}
"""Styles in the theme's own variables."""


class Painter:
    """Turns lines into strips for one widget; styles are resolved once per look of the widget."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._base: Style | None = None
        self._styles: dict[Tone, RichStyle] = {}

    def strip(self, line: Line, width: int) -> Strip:
        """`line` cut or filled to `width` cells."""
        base = self._widget.visual_style
        if base != self._base:
            self._base = base
            self._styles = {}
        segments = [Segment(span.text, self._style(span.tone, base)) for span in line]
        return Strip(segments).adjust_cell_length(width, base.rich_style)

    def own_style(self, tone: Tone) -> RichStyle:
        """The tone alone, to be laid over whatever is beneath (a cursor, a stripe)."""
        own = TONES[tone]
        return self._widget.app.stylesheet.parse_style(own).rich_style if own else RichStyle()

    def _style(self, tone: Tone, base: Style) -> RichStyle:
        style = self._styles.get(tone)
        if style is None:
            own = TONES[tone]
            parsed = base + self._widget.app.stylesheet.parse_style(own) if own else base
            style = self._styles[tone] = parsed.rich_style
        return style


def content(lines: Iterable[Line]) -> Content:
    """Lines as one Content, never read as markup."""
    return Content("\n").join(
        Content.assemble(*((span.text, TONES[span.tone]) for span in line)) for line in lines
    )
