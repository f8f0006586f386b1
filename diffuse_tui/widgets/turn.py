"""One turn of the chat: the question, the answer as it grows, what is to say about it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, TypeVar

from rich.segment import Segment
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean
from diffuse_tui.presenter.blocks import BlockCutter, Piece
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.flow import Paragraph
from diffuse_tui.presenter.kept_turn import kept_foot, preview_rows, question_text
from diffuse_tui.presenter.markdown import Shaper, tail_flow
from diffuse_tui.presenter.rich_text import Look, Run
from diffuse_tui.presenter.spans import Span, plain
from diffuse_tui.widgets.code_block import CodeBlock
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.prose import Prose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.app import ComposeResult
    from textual.geometry import Region, Size
    from textual.timer import Timer

    from diffuse_tui.presenter.dialogue import TurnState
    from diffuse_tui.presenter.rich_text import Row
    from diffuse_tui.presenter.spans import Line

Body = TypeVar("Body", Prose, CodeBlock)

_REFRESH_S = 0.15
"""A row more moves all that is seen: this often it costs a tenth of a core, and reads smoothly."""
_AT_ONCE = 4_000
"""Characters that are shaped before other things get their turn."""
MAX_BLOCKS = 100
"""Blocks of code that are shown each by itself: every one costs as long as the turn is shown."""
_HAPPENED = 4
"""Lines of what befell an answer that are kept under it while it grows."""
_WAITING = (Paragraph((Run("waiting for the first token…", Look.DIM),)),)


class TurnView(Vertical):
    """Settled text is shaped once; only the tail is shaped again while it grows.

    A finished turn that is far from what is seen is folded: one widget of the same height, for
    every widget costs each time that the screen is laid out. It unfolds when it is seen.
    """

    def __init__(self, question: str) -> None:
        super().__init__(classes="turn")
        self.question = question
        self.state: TurnState | Literal["waiting"] = "waiting"
        self._parts: list[str] = []
        self._happened: list[Line] = []
        self._said: tuple[Line, ...] = ()
        self._cutter = BlockCutter()
        self._shaper = Shaper()
        self._pieces: deque[Piece] = deque()
        self._body: Prose | CodeBlock | None = None
        self._blocks = 0
        self._rest: CodeBlock | None = None
        self._foot = Static("", classes="foot", markup=False)
        self._brief = Static("", classes="foot brief", markup=False)
        self._timer: Timer | None = None
        self._brief_line: Line | None = None
        self._folded: KeptTurn | None = None
        self._height = (0, 0)  # For this width, so many rows, when it was folded.
        self._preview: tuple[int, list[Row]] = (0, [])

    @classmethod
    def kept(cls, turn: KeptTurn) -> TurnView:
        """A turn from before; it costs little until it is scrolled into view."""
        view = cls(turn.question)
        view._parts.append(turn.answer)
        view.state = "cut" if turn.state == "streaming" else turn.state
        view._said = kept_foot(turn)
        view._folded = turn
        return view

    @property
    def answer(self) -> str:
        """The text so far, as the model wrote it."""
        return "".join(self._parts)

    @property
    def said(self) -> str:
        """What is said under the answer, as text: the note of a KeptTurn."""
        return "\n".join(plain(line) for line in self._said)

    def compose(self) -> ComposeResult:
        """Question and foot; text and code come between."""
        if self._folded is None:
            yield from self._frame()

    def _frame(self) -> Sequence[Static]:
        question = Static(Content(question_text(self.question)), classes="question")
        return question, self._foot, self._brief

    def on_mount(self) -> None:
        """Say that there is nothing yet, or show what came already."""
        if self._folded is None:
            self._fold_others()
            self._work()

    # --- a turn that grows --------------------------------------------------------------------

    def add(self, text: str) -> None:
        """Take more text; the screen follows a few times a second."""
        if not text:
            return
        self.state = "streaming"
        self._parts.append(text)
        self._pieces += self._cutter.push(clean(text))
        if self._timer is None:
            self._timer = self.set_timer(_REFRESH_S, self._refreshed)

    def note(self, lines: Iterable[Line], *, passing: bool = False) -> None:
        """Say something under the answer; where rows are few, nothing that is only `passing`."""
        self._said = tuple(lines)
        self._foot.set_class(passing, "long")
        self._show_foot()

    def happened(self, line: Line) -> None:
        """Something befell the answer, which goes on: said with the latest of its kind."""
        self._happened = [*self._happened, line][-_HAPPENED:]
        self.note(self._happened)

    def finish(
        self, lines: Iterable[Line], brief: Line | None = None, state: TurnState = "done"
    ) -> None:
        """The answer is over: settle what is left. `brief` stands in where rows are few.

        Without one, nothing but `lines` tells how it went: what befell it stays.
        """
        self._settle(state)
        self._brief_line = brief
        before = () if brief is not None else self._happened
        self.note([*before, *lines], passing=brief is not None)

    def _show_foot(self) -> None:
        self._foot.update(content(self._said))
        self._foot.set_class(bool(self._said), "said")
        if self._brief_line is not None:
            self._brief.update(content([self._brief_line]))
            self._brief.add_class("said")

    def fail(self, message: str) -> None:
        """Show why there is no answer, or no more of it."""
        self._settle("failed")
        self.note([*self._happened, (Span("✖ ", "bad"), Span(clean(message)))])

    def _settle(self, state: TurnState) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.state = state
        self.set_class(state == "failed", "failed")
        self.remove_class("live")
        self._pieces += self._cutter.flush()
        self._work()

    def allow_focus_children(self) -> bool:
        """Tab passes by the code of answers, unless it is there already; `[` and `]` go there."""
        return self.has_focus_within

    # --- drawing --------------------------------------------------------------------------------

    def _refreshed(self) -> None:
        self._timer = None
        self._work()

    def _work(self) -> None:
        """Show some of what waits, then let others have their turn."""
        if not self._foot.is_attached:
            return
        done = 0
        while self._pieces and done < _AT_ONCE:
            done += self._take()
        if self._pieces:
            self.call_later(self._work)
        else:
            self._show_tail()

    def _take(self) -> int:
        """Show the next piece, or the next lines of code; how many characters that were."""
        if self._rest is not None:
            return self._take_rest(self._rest)
        piece = self._pieces.popleft()
        match piece.kind:
            case "text":
                self._prose().add(self._shaper.shape(piece.text))
            case "code":
                if isinstance(self._body, Prose):
                    self._body.show_tail(())
                block = self._put(CodeBlock(piece.text))
                self._blocks += 1
                self._rest = block if self._blocks == MAX_BLOCKS else None
            case "line" if isinstance(self._body, CodeBlock):
                lines = [piece.text]
                while self._pieces and self._pieces[0].kind == "line" and len(lines) < _AT_ONCE:
                    lines.append(self._pieces.popleft().text)
                self._body.add(lines)
                return sum(map(len, lines))
            case "end" if isinstance(self._body, CodeBlock):
                self._body.complete()
                self._shaper.between()
                self._body = None
            case _:
                pass
        return len(piece.text) + 1

    def _take_rest(self, body: CodeBlock) -> int:
        """So many blocks are no answer to anything: what follows is one, as it was written."""
        lines: list[str] = []
        while self._pieces and len(lines) < _AT_ONCE:
            piece = self._pieces.popleft()
            fence = "```" if piece.kind in ("code", "end") else ""
            lines += f"{fence}{piece.text.removesuffix(chr(10))}".split("\n")
        body.add(lines)
        return sum(map(len, lines)) + len(lines)

    def _prose(self) -> Prose:
        return self._body if isinstance(self._body, Prose) else self._put(Prose())

    def _put(self, body: Body) -> Body:
        self._body = body
        self.mount(body, before=self._foot)
        return body

    def _show_tail(self) -> None:
        tail = self._cutter.tail
        if self.state == "waiting":
            self._prose().show_tail(_WAITING)
        elif self.state != "streaming":
            if isinstance(self._body, Prose):
                self._body.show_tail(())
            elif self._rest is not None:
                self._rest.complete()
        elif isinstance(self._body, CodeBlock):
            self._body.show_tail(tail[-_AT_ONCE:])
        else:
            self._prose().show_tail(tail_flow(self._shaper, tail))

    # --- folded -------------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """What it took when it was folded; before it was ever seen, what plain text would take."""
        if self._folded is None:
            return super().get_content_height(container, viewport, width)
        return self._height[1] if width == self._height[0] else len(self._plain_rows(width))

    def render_line(self, y: int) -> Strip:
        """Folded and seen: from now on the turn is drawn as all others are."""
        if self._folded is None:
            return super().render_line(y)
        self.call_later(self._unfold)
        rows = self._plain_rows(self.content_size.width)
        text = rows[y].text if y < len(rows) else ""
        style = self.visual_style.rich_style
        return Strip([Segment(text, style)]).adjust_cell_length(self.content_size.width, style)

    def _plain_rows(self, width: int) -> list[Row]:
        if self._folded is not None and self._preview[0] != width:
            self._preview = (width, preview_rows(self._folded, width))
        return self._preview[1]

    def _unfold(self) -> None:
        turn, self._folded = self._folded, None
        if turn is None:
            return
        self._preview = (0, [])
        self._foot = Static("", classes=f"foot{' long' if self._brief_line else ''}", markup=False)
        self._brief = Static("", classes="foot brief", markup=False)
        self.mount(*self._frame())
        self._show_foot()
        self._pieces += [*self._cutter.push(clean(turn.answer)), *self._cutter.flush()]
        self.set_class(self.state == "failed", "failed")
        self._work()
        self._fold_others()

    def _fold_others(self) -> None:
        """Fold the turns that are more than a screen away from what is seen."""
        around = self.parent
        if isinstance(around, Widget):
            near = around.region.grow((around.size.height, 0, around.size.height, 0))
            for other in around.children:
                if isinstance(other, TurnView) and other is not self:
                    other.fold_outside(near)

    def fold_outside(self, near: Region) -> None:
        """Give up the widgets of a finished turn that is not within `near`, and not in use."""
        busy = self._pieces or self.state in ("waiting", "streaming") or not self.is_attached
        if busy or self._folded is not None or self.has_focus_within:
            return
        if near.overlaps(self.region) or not self.size or self._selected():
            return
        self._height = (self.content_size.width, self.content_size.height)
        # How it ended is in what is said under it.
        self._folded = KeptTurn(
            number=0, question=self.question, answer=self.answer, state="done", note=self.said
        )
        self._cutter, self._shaper, self._body = BlockCutter(), Shaper(), None
        self._blocks, self._rest = 0, None
        self.remove_children()

    def _selected(self) -> bool:
        return any(child in self.screen.selections for child in self.children)
