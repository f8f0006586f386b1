"""The turns of the conversation, scrolled by keys; it follows the newest text until left."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.code_walk import CodeWalk
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from diffuse_tui.presenter.dialogue import KeptTurn
    from diffuse_tui.widgets.turn import TurnView

MAX_TURNS_SHOWN = 60

_HELLO = (
    "Ask the model anything. Its layers are spread over the hosts of the coverage map; "
    "your question passes through them in order, and the answer streams back here.\n"
    "/ lists commands · F8: earlier conversations"
)

_DEEDS = (
    "[@click=screen.chat('regenerate')]R anew[/] · [@click=screen.chat('edit')]E edit[/] · "
    "[@click=screen.chat('copy')]y copy[/] · [@click=screen.waterfall]v times[/]"
)
"""What can be done with the last answer, for the mouse and as a reminder of the keys."""


class ConversationView(CodeWalk):
    """Holds a TurnView for each of the newest turns, and lines between them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
        Binding("g", "scroll_home", "To the beginning", show=False),
        Binding("G", "follow", "To the end", show=False),
        Binding("ctrl+d", "half(1)", "Half a page down", show=False),
        Binding("ctrl+u", "half(-1)", "Half a page up", show=False),
        Binding("J", "turn(1)", "Next turn", show=False),
        Binding("K", "turn(-1)", "Turn before", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._views: dict[int, TurnView] = {}
        self._switch: Static | None = None
        self._deeds = Static(id="deeds")
        self._deeds.display = False
        self.notice_typing(typing=True)

    def notice_typing(self, *, typing: bool) -> None:
        """While one types, letters are text: then the reminder begins with the way out."""
        self._deeds.update(Content.from_markup(("Esc, then " if typing else "") + _DEEDS))

    def compose(self) -> ComposeResult:
        """What to do here, until there is a turn."""
        yield Static(Content(_HELLO), id="hello")
        yield self._deeds

    def on_mount(self) -> None:
        """Follow the newest text until scrolled away."""
        self.anchor()

    def begin_turn(self, number: int, question: str) -> TurnView:
        """Show a question whose answer is to come, in the place of all turns from `number` on."""
        from diffuse_tui.widgets.turn import TurnView

        self.drop_from(number)
        view = TurnView(question)
        view.add_class("live")
        self._show(number, [view])
        self._deeds.display = False
        return view

    def settled(self) -> None:
        """The last answer grows no more: tell what can be done with it."""
        self._deeds.display = bool(self._views)

    def show_from(self, first: int, turns: Sequence[KeptTurn]) -> None:
        """Show these turns in the place of all from number `first` on."""
        from diffuse_tui.widgets.turn import TurnView

        self.drop_from(first)
        kept = turns[-MAX_TURNS_SHOWN:]
        self._show(first + len(turns) - len(kept), [TurnView.kept(turn) for turn in kept])
        self.settled()

    def drop_from(self, first: int) -> None:
        """Take the turns from number `first` on off the screen."""
        for number in [number for number in self._views if number >= first]:
            self._views.pop(number).remove()
        if not self._views:
            self.query(".switch").remove()
            self._switch = None
            self.query_one("#hello").display = True
            self._deeds.display = False

    def tell_switch(self, text: str) -> None:
        """Say between turns that the model changed; "" when it is the one from before again."""
        if self._switch is not None:
            self._switch.remove()
            self._switch = None
        if text and self._views:
            line = (Span("── ", "dim"), Span(clean_line(text, 200), "accent"), Span(" ──", "dim"))
            self._switch = Static(content([line]), classes="switch", markup=False)
            self.mount(self._switch, before=self._deeds)

    def _show(self, first: int, views: Sequence[TurnView]) -> None:
        if not views:
            return
        self.query_one("#hello").display = False
        self._switch = None
        self._views.update(enumerate(views, first))
        self.mount_all(views, before=self._deeds)
        for number in sorted(self._views)[:-MAX_TURNS_SHOWN]:
            self._views.pop(number).remove()
        self.anchor()

    # --- keys -------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """Go to the newest text and stay there."""
        self.anchor()
        self.scroll_end(animate=False)

    def action_half(self, way: int) -> None:
        """Scroll by half of what is seen."""
        self.scroll_relative(y=way * max(1, self.size.height // 2), animate=False)

    def action_turn(self, way: int) -> None:
        """Put the next turn, or the one before, at the top."""
        tops = [view.virtual_region.y for _, view in sorted(self._views.items())]
        here = round(self.scroll_y)
        others = [top for top in tops if (top > here if way > 0 else top < here)]
        if others:
            self._to(others[0] if way > 0 else others[-1])
        elif way > 0:
            self.action_follow()
        else:
            self._to(0)

    def _to(self, y: int) -> None:
        self.scroll_to(y=y, animate=False)

    def view_of(self, number: int) -> Widget | None:
        """The view of a turn, while it is shown."""
        return self._views.get(number)
