"""Where a question is typed: Enter sends, Up recalls."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from diffuse_tui.presenter.chips import (
    chips_in,
    pasted_label,
    resolved,
    typable,
    worth_a_chip,
)
from diffuse_tui.widgets.chips import MAX_TYPED, ChipArea
from diffuse_tui.widgets.focus import PageTarget

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.events import Key

    from diffuse_tui.widgets.completions import Completions

_NEW_LINE = ("alt+enter", "shift+enter", "ctrl+j")
MAX_RECALLED = 100
MAX_KEPT_CHARS = 4_000_000
"""Characters of long texts that are kept for recalling."""
_FULL = (
    f"no more than {MAX_TYPED:,} characters can be typed; what is pasted or attached can be longer"
)


class Prompt(PageTarget, ChipArea):
    """A growing text field with a memory of what was sent.

    Args:
        completions: What may take keys before the text does.
        submit: Called with the text when Enter is pressed, and no later: keys that follow at once
            are of the next text. Whoever takes the text calls `taken`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send", show=False),
        Binding("alt+enter", "new_line", "New line", show=False),
        Binding("ctrl+o", "expand", "Expand the pasted text", show=False),
    ]

    def __init__(self, completions: Completions, submit: Callable[[str], None]) -> None:
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
        self._submit = submit
        self._full = False
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
            if not self._full:
                self._full = True
                self.post_message(self.Refused(_FULL))
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
            self._submit(text)

    def action_new_line(self) -> None:
        """Break the line at the cursor."""
        self.insert("\n")

    def taken(self) -> None:
        """The text was sent: remember and clear it."""
        self._sent.append(self.text)
        self._back = 0
        self._draft = ""
        self._full = False
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
        """Forget long texts that nothing has any more, then what was sent longest ago."""
        while self._kept_chars() > MAX_KEPT_CHARS:
            held = "\n".join((*self._sent, self.text))
            labels = {held[start:end] for start, end in chips_in(held, self.chips)}
            self.chips = {label: self.chips[label] for label in self.chips if label in labels}
            if self._kept_chars() <= MAX_KEPT_CHARS or len(self._sent) <= 1:
                return
            self._sent.popleft()

    def _kept_chars(self) -> int:
        return sum(map(len, self.chips.values()))

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
