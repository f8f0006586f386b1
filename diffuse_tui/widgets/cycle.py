"""A setting of few values, in one line: the next with each key or click."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Sequence


class Cycle(Widget, can_focus=True):
    """A label, and the value between marks. Space, Enter, arrows or a click change it.

    Args:
        label: What is set.
        values: What it may be; never empty.
        value: The one it is at first; the first of them when left out.
    """

    DEFAULT_CSS = """
    Cycle { width: auto; height: 1; margin-right: 2; pointer: pointer; }
    Cycle:focus {
        background: $block-cursor-background; color: $block-cursor-foreground;
        text-style: bold underline;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space,enter,l", "turn(1)", "Next value", show=False),
        Binding("left", "turn(-1)", "Value before", show=False),
    ]
    value: reactive[str] = reactive("", layout=True)

    class Changed(Message):
        """The user set another value."""

        def __init__(self, cycle: Cycle) -> None:
            super().__init__()
            self.cycle = cycle

        @property
        def control(self) -> Cycle:
            """Where."""
            return self.cycle

    def __init__(
        self,
        label: str,
        values: Sequence[str],
        value: str | None = None,
        *,
        id: str,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._label = label
        self._values = tuple(values)
        self.set_reactive(Cycle.value, value or self._values[0])

    def render(self) -> Content:
        """One line."""
        return Content.assemble((self._label, "$label"), f" ◂{self.value}▸")

    def action_turn(self, by: int) -> None:
        """Take the next value, or the one before."""
        at = self._values.index(self.value) if self.value in self._values else 0
        self.value = self._values[(at + by) % len(self._values)]
        self.post_message(self.Changed(self))

    def on_click(self) -> None:
        """As a key."""
        self.action_turn(1)
