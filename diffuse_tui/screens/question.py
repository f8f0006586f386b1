"""A question with a few answers, each a key and a line to click."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.widgets.option_list import Option

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.spans import Span
from diffuse_tui.screens.closing import ClosesOnce
from diffuse_tui.widgets.choices import Choices
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key
    from textual.widgets import OptionList


class Answer(NamedTuple):
    """The key that gives it, and what it means."""

    key: str
    words: str


class Question(ClosesOnce, ModalScreen[str | None]):
    """Gives back the key of the answer, None for Esc.

    Args:
        title: What it is about.
        text: What one should know to answer.
        answers: At least one; the first is under the cursor.
    """

    DEFAULT_CSS = """
    Question { align: center middle; background: $background 70%; }
    #question {
        width: 66; max-width: 95%; height: auto; max-height: 90%; padding: 0 1;
        border: round $border; background: $surface;
        border-title-color: $primary; border-subtitle-color: $dim;
    }
    #question Static { height: auto; margin: 0 1 1 1; }
    #question OptionList { height: auto; border: none; background: $surface; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, title: str, text: str, answers: tuple[Answer, ...]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._answers = answers

    def compose(self) -> ComposeResult:
        """The text over the answers."""
        with Vertical(id="question") as box:
            box.border_title = clean_line(self._title, 60)
            box.border_subtitle = "Esc cancels"
            yield Static(content([(Span(clean_line(self._text)),)]))
            yield Choices(
                *(
                    Option(content([(Span(f" {a.key}  ", "accent"), Span(a.words))]))
                    for a in self._answers
                ),
                markup=False,
            )

    def on_key(self, event: Key) -> None:
        """Take an answer by its key."""
        if any(event.key == answer.key for answer in self._answers):
            event.stop()
            self.dismiss(event.key)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Take the answer under the cursor."""
        message.stop()
        self.dismiss(self._answers[message.option_index].key)
