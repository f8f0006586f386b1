"""One turn of the chat: the question, the answer as it grows, what is to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean
from diffuse_tui.presenter.blocks import BlockCutter, too_much_for_markdown
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markdown_it import MarkdownIt
    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widget import Widget

    from diffuse_tui.presenter.spans import Line

_REFRESH_S = 0.1
_TAIL_CHARS = 4_000
_HAPPENED = 4
"""Lines of what befell an answer that are kept under it while it grows."""


class TurnView(Vertical):
    """Settled blocks are mounted as Markdown once; the tail is plain text until it settles."""

    def __init__(self, question: str) -> None:
        super().__init__(classes="turn")
        self.question = question
        self._parts: list[str] = []
        self._happened: list[Line] = []
        self._cutter = BlockCutter()
        self._tail = Static(Content("waiting for the first token…"), classes="tail waiting")
        self._foot = Static("", classes="foot", markup=False)
        self._brief = Static("", classes="foot brief", markup=False)
        self._timer: Timer | None = None

    @property
    def answer(self) -> str:
        """The text so far, as the model wrote it."""
        return "".join(self._parts)

    def compose(self) -> ComposeResult:
        """Question, tail and foot; answer blocks come between."""
        yield Static(Content(clean(self.question)), classes="question")
        yield self._tail
        yield self._foot
        yield self._brief

    def add(self, text: str) -> None:
        """Take more text; the screen follows a few times a second."""
        if not text:
            return
        self._parts.append(text)
        settled = self._cutter.push(clean(text))
        if settled.strip():
            self._mount_block(settled)
        if self._timer is None:
            self._timer = self.set_timer(_REFRESH_S, self._show_tail)

    def note(self, lines: Iterable[Line], *, passing: bool = False) -> None:
        """Say something under the answer; where rows are few, nothing that is only `passing`."""
        self._foot.update(content(lines))
        self._foot.add_class("said")
        self._foot.set_class(passing, "long")

    def happened(self, line: Line) -> None:
        """Something befell the answer, which goes on: said with the latest of its kind."""
        self._happened = [*self._happened, line][-_HAPPENED:]
        self.note(self._happened)

    def finish(self, lines: Iterable[Line], brief: Line | None = None) -> None:
        """The answer is complete: settle what is left. `brief` stands in where rows are few."""
        self._settle()
        self.note(lines, passing=brief is not None)
        if brief is not None:
            self._brief.update(content([brief]))
            self._brief.add_class("said")

    def fail(self, message: str) -> None:
        """Show why there is no answer, or no more of it."""
        self._settle()
        self.add_class("failed")
        self.note([(Span("✖ ", "bad"), Span(clean(message)))])

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        rest = self._cutter.flush()
        if rest.strip():
            self._mount_block(rest)
        self._tail.display = False
        self.remove_class("live")

    def _show_tail(self) -> None:
        self._timer = None
        tail = self._cutter.tail.lstrip("\n")
        cut = "…" if len(tail) > _TAIL_CHARS else ""
        self._tail.remove_class("waiting")
        self._tail.update(Content(f"{cut}{tail[-_TAIL_CHARS:]}▍"))

    def _mount_block(self, block: str) -> None:
        self.mount(_block_widget(block.strip("\n")), before=self._tail)


def _block_widget(block: str) -> Widget:
    if too_much_for_markdown(block):
        return Static(Content(block), classes="plain-block")
    # Imported with the first answer: it would be a tenth of the time to the first paint.
    from textual.widgets import Markdown

    return Markdown(block, parser_factory=_parser, open_links=False)


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Raw HTML is shown as the text it is; it would vanish otherwise.
    return MarkdownIt("gfm-like", {"html": False})
