"""The two lines on top of the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.reactive import reactive
from textual.widget import Widget

from diffuse_tui.presenter.banner import Link, state_line, title_line
from diffuse_tui.presenter.facts import Facts
from diffuse_tui.widgets.paint import Painter

if TYPE_CHECKING:
    from textual.strip import Strip


class Banner(Widget):
    """Model, state sentence and connection, always visible."""

    facts: reactive[Facts] = reactive(
        Facts("", None, None, None, Link("connecting")), always_update=True
    )

    crumbs: reactive[tuple[str, ...]] = reactive(())
    """The way from the main screen to the one that is shown."""

    def __init__(self, facts: Facts, crumbs: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._painter = Painter(self)
        self.set_reactive(Banner.facts, facts)
        self.set_reactive(Banner.crumbs, crumbs)

    def on_mount(self) -> None:
        """The tint of what is known already."""
        self.watch_facts()

    def watch_facts(self) -> None:
        """Tint the banner with the state's tone."""
        facts = self.facts
        _, tone = state_line(facts.model, facts.view, facts.link, facts.wanted, 80)
        for name in ("good", "warning", "bad"):
            self.set_class(tone == name, f"-{name}")

    def render_line(self, y: int) -> Strip:
        """Draw one of the two lines."""
        facts, width = self.facts, self.size.width
        if y == 0:
            line = title_line(facts.title, facts.model, facts.view, facts.link, width, self.crumbs)
        else:
            line, _ = state_line(facts.model, facts.view, facts.link, facts.wanted, width)
        return self._painter.strip(line, width)
