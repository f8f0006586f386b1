"""A list of options that also stands having no room at all."""

from __future__ import annotations

from textual.widgets import OptionList


class Choices(OptionList):
    """Where no row fits, as in a very small terminal, Textual's own cannot turn pages."""

    def action_page_up(self) -> None:
        """A page up, where there are pages."""
        if self.scrollable_content_region:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        """A page down, where there are pages."""
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]
