"""Where a question is typed: Enter sends, Up recalls."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from diffuse_tui.presenter.chips import (
    chips_in,
    pasted_label,
    resolved,
    typable,
    worth_a_chip,
)
from diffuse_tui.widgets.chips import ChipArea
from diffuse_tui.widgets.focus import PageTarget

if TYPE_CHECKING:
    from textual.events import Key

    from diffuse_tui.widgets.completions import Completions

_NEW_LINE = ("alt+enter", "shift+enter", "ctrl+j")
MAX_RECALLED = 100
MAX_KEPT_CHARS = 4_000_000
"""Characters of long texts that are kept for recalling."""
MAX_TYPED = 8192
"""Characters after which single keys are ignored."""


class Prompt(PageTarget, ChipArea):
    """A growing text field with a memory of what was sent."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send", show=False),
        Binding("alt+enter", "new_line", "New line", show=False),
        Binding("ctrl+o", "expand", "Expand the pasted text", show=False),
    ]

    class Submitted(Message):
        """The text was sent; whoever takes it clears the prompt."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, completions: Completions) -> None:
        super().__init__(
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            show_line_numbers=False,
            soft_wrap=True,
            tab_behavior="focus",
        )
        for key in ("f6", "f7"):
            # To a TextArea they mean to select; here they open screens as they do everywhere.
            self._bindings.key_to_bindings.pop(key, None)
        self.cursor_blink = False
        self.chips = {}
        self._completions = completions
        self._sent: deque[str] = deque(maxlen=MAX_RECALLED)
        self._back = 0
        self._draft = ""

    def on_key(self, event: Key) -> None:
        """Take Enter before the text area makes a line break of it."""
        if (taken := self._completions.press(event.key, self.text)) is not None:
            event.stop()
            event.prevent_default()
            self._complete(taken.text, send=taken.send)
        elif event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_submit()
        elif event.is_printable and len(self.text) >= MAX_TYPED:
            # Nobody types that much: it is a paste that comes as keys, and each costs more than
            # the one before. What comes as a real paste is not touched.
            event.stop()
            event.prevent_default()
        elif event.key in _NEW_LINE:
            event.stop()
            event.prevent_default()
            self.action_new_line()

    def _complete(self, text: str | None, *, send: bool) -> None:
        if text is not None and text != self.text:
            self.put(text)
        if send:
            self.action_submit()

    def action_submit(self) -> None:
        """Offer the text to the chat."""
        text = self.full_text
        if text.strip():
            self.post_message(self.Submitted(text))

    def action_new_line(self) -> None:
        """Break the line at the cursor."""
        self.insert("\n")

    def taken(self) -> None:
        """The text was sent: remember and clear it."""
        self._sent.append(self.text)
        self._back = 0
        self._draft = ""
        self.clear()
        self._let_go()

    def exchange(self, text: str) -> None:
        """Show `text` instead; what was there can be recalled."""
        if self.text.strip():
            self._sent.append(self.text)
        self._back = 0
        self.put(text)

    def put(self, text: str) -> None:
        """Set the text, cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def put_question(self, question: str) -> None:
        """Set a question that was sent before, chips and all; a long one becomes a chip."""
        for sent in reversed(self._sent):
            if resolved(sent, self.chips) == question:
                self.put(sent)
                return
        if worth_a_chip(question):
            label = pasted_label(question, self.chips)
            self.chips[label] = question
            question = label
        self.put(typable(question))

    def _let_go(self) -> None:
        """Forget the longest texts' oldest: what is recalled then has their labels only."""
        while sum(map(len, self.chips.values())) > MAX_KEPT_CHARS and len(self._sent) > 1:
            oldest = self._sent.popleft()
            for start, end in chips_in(oldest.replace("\n", " "), self.chips):
                self.chips.pop(oldest[start:end], None)

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up; from the first line, recall the message before."""
        if select or self.cursor_location[0] > 0 or self._back >= len(self._sent):
            super().action_cursor_up(select)
            return
        if self._back == 0:
            self._draft = self.text
        self._back += 1
        self.put(self._sent[-self._back])

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down; from the last line, go towards the draft again."""
        if select or self._back == 0 or self.cursor_location[0] < self.document.line_count - 1:
            super().action_cursor_down(select)
            return
        self._back -= 1
        self.put(self._sent[-self._back] if self._back else self._draft)
