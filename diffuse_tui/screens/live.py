"""Full screens over the main one that follow the network while they are open."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical

from diffuse_tui.screens.frame import FramedScreen
from diffuse_tui.widgets.banner import Banner
from diffuse_tui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_tui.presenter.facts import Facts

Result = TypeVar("Result")

_ELSEWHERE = ("f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9")
"""Keys of the main screen that lead from one screen to another, too."""


class LiveScreen(FramedScreen[Result]):
    """Banner with breadcrumbs, a body of its own, the keys. Esc or q goes back.

    The main screen calls `show` with every newer picture. `CRUMB` is the screen's name: the last
    part of the breadcrumbs, and the section of its keys in `presenter.keys`.
    """

    CRUMB: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("q", "back", "Back", show=False),
        *(Binding(key, f"leave_for('{key}')", show=False) for key in _ELSEWHERE),
    ]

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts

    @property
    def help_name(self) -> str:
        """The keys' section has the screen's name."""
        return self.CRUMB

    @property
    def crumbs(self) -> tuple[str, ...]:
        """The way here from the main screen; the product's name comes before it."""
        return (self.CRUMB,)

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        yield Banner(self.facts, self.crumbs)
        with Vertical(classes="live-body"):
            yield from self.compose_body()
        yield self.too_small()
        yield KeyLine()

    def on_mount(self) -> None:
        """Draw what is known already."""
        self.show_facts(self.facts)

    def action_back(self) -> None:
        """Back to all panels, then to the screen below."""
        if not self.zoom_out():
            self.dismiss(None)

    async def action_leave_for(self, key: str) -> None:
        """Do what the key does on the main screen; screens over it are left as by Esc."""
        while isinstance(screen := self.app.screen, LiveScreen):
            screen.dismiss(None)
        main = self.app.screen
        if (there := main.active_bindings.get(key)) is not None:
            await main.run_action(there.binding.action)

    def show(self, facts: Facts) -> None:
        """A newer picture came."""
        self.facts = facts
        if self.can_draw:
            self.query_one(Banner).facts = facts
            self.show_facts(facts)

    @abstractmethod
    def compose_body(self) -> ComposeResult:
        """The widgets between banner and keys."""

    @abstractmethod
    def show_facts(self, facts: Facts) -> None:
        """Bring the body up to date; called once mounted, then with every picture."""
