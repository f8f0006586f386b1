"""Text of an answer between code blocks: what is settled, and the tail that still grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.presenter.flow import flow_rows
from diffuse_tui.widgets.looks import RowsWidget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_tui.presenter.flow import Flow
    from diffuse_tui.presenter.rich_text import Row


class Prose(RowsWidget):
    """Wraps each paragraph once for a width; adding to a long text costs what is added."""

    def __init__(self) -> None:
        super().__init__(classes="prose")
        self._flows: list[Flow] = []
        self._tail: tuple[Flow, ...] = ()
        self._rows: list[Row] = []
        self._settled = 0  # Rows before the tail's.
        self._width = 0

    def add(self, flows: Iterable[Flow]) -> None:
        """Settled paragraphs; the tail that they were is gone."""
        added = list(flows)
        if not added and not self._tail:
            return
        before = len(self._rows)
        self._flows += added
        self._tail = ()
        del self._rows[self._settled :]
        self._wrap(added)
        self._settled = len(self._rows)
        self._drawn(before)

    def show_tail(self, flows: tuple[Flow, ...]) -> None:
        """What may still change how it looks."""
        before = len(self._rows)
        del self._rows[self._settled :]
        self._tail = flows
        self._wrap(flows)
        self._drawn(before)

    def rows_at(self, width: int) -> list[Row]:
        """Wrapped anew only where the width is another one."""
        if width != self._width:
            self._width, self._rows = width, []
            self._wrap(self._flows)
            self._settled = len(self._rows)
            self._wrap(self._tail)
        return self._rows

    def forget(self) -> None:
        """Give up the text."""
        self._flows, self._tail, self._rows, self._settled = [], (), [], 0

    def _wrap(self, flows: Iterable[Flow]) -> None:
        if self._width > 0:
            for flow in flows:
                self._rows += flow_rows(flow, self._width)

    def _drawn(self, before: int) -> None:
        self.refresh(layout=len(self._rows) != before or not self._width)
