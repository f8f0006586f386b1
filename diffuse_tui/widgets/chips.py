"""A text field in which long texts are chips: one label each, removed and expanded as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from textual.document._edit import Edit
from textual.message import Message
from textual.widgets import TextArea

from diffuse_core.domain.context import MAX_CHARS
from diffuse_tui.presenter.chips import (
    attached_label,
    attached_text,
    chips_in,
    pasted_label,
    resolved,
    typable,
    whole,
    worth_a_chip,
)

if TYPE_CHECKING:
    from rich.text import Text
    from textual.document._document import EditResult
    from textual.events import Click, Paste

MAX_TYPED = 8_192
"""Characters that the field takes as text; more make every key slow."""

_CHIP = Style(bold=True, reverse=True)


class ChipArea(TextArea):
    """Pasted and attached texts are sent in full and shown as labels."""

    class Refused(Message):
        """Something was not taken, and nothing is lost; `why` tells what to do."""

        def __init__(self, why: str) -> None:
            super().__init__()
            self.why = why

    chips: dict[str, str]
    """What each label stands for; labels that are not in the text any more may come back."""

    @property
    def full_text(self) -> str:
        """The text with every chip in full."""
        return resolved(self.text, self.chips)

    def on_paste(self, event: Paste) -> None:
        """Take a long text as a chip, and none that no question can hold."""
        event.stop()
        event.prevent_default()
        text = typable(event.text)
        if len(text) > MAX_CHARS:
            self.post_message(
                self.Refused(
                    f"not pasted: {len(text):,} characters, and at most {MAX_CHARS:,} fit in a "
                    "question; paste a part of it"
                )
            )
        elif worth_a_chip(text):
            self._put_chip(pasted_label(text, self.chips), text)
        else:
            self.replace(text, *self.selection, maintain_selection_offset=False)
        self.focus()

    def attach(self, name: str, text: str) -> None:
        """Put the text of a file in as a chip."""
        self._put_chip(attached_label(name, text, self.chips), attached_text(name, text))

    def _put_chip(self, label: str, text: str) -> None:
        self.chips[label] = text
        self.replace(f"{label} ", *self.selection, maintain_selection_offset=False)

    def action_expand(self) -> None:
        """Make text of the chip under or just before the cursor."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        spans = chips_in(line, self.chips)
        near = [span for span in spans if span[0] <= column <= span[1] + 1]
        if not near:
            return
        start, end = near[0]
        text = self.chips[line[start:end]]
        if len(self.text) - (end - start) + len(text) > MAX_TYPED:
            why = f"too long to be edited here: {len(text):,} characters; it is sent in full"
            self.post_message(self.Refused(why))
            return
        self.replace(typable(text), (row, start), (row, end), maintain_selection_offset=False)

    def on_click(self, event: Click) -> None:
        """A double click expands a chip."""
        if event.chain == 2:
            self.action_expand()

    def edit(self, edit: Edit) -> EditResult:
        """Every change comes through here: it takes a chip whole or not at all."""
        top, bottom = sorted((edit.from_location, edit.to_location))
        if self.chips:
            first, last = self._widened(top, bottom)
            if (first, last) != (top, bottom):
                edit = Edit(edit.text, first, last, maintain_selection_offset=False)
        return super().edit(edit)

    def _widened(
        self, top: tuple[int, int], bottom: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        (row, start), (last_row, end) = top, bottom
        line = self.document.get_line(row)
        spans = chips_in(line, self.chips)
        if row == last_row:
            start, end = whole(start, end, spans)
        else:
            start, _ = whole(start, len(line), spans) if start < len(line) else (start, 0)
            if last_row < self.document.line_count:  # deleting a line ends on the one after it
                _, end = whole(0, end, chips_in(self.document.get_line(last_row), self.chips))
        return (row, start), (last_row, end)

    def get_line(self, line_index: int) -> Text:
        """The line, its chips set off."""
        line = super().get_line(line_index)
        if self.chips:
            for start, end in chips_in(line.plain, self.chips):
                line.stylize(_CHIP, start, end)
        return line
