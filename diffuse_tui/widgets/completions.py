"""What would complete a command, as a short list above the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.events import Click

    from diffuse_tui.presenter.slash import Match
    from diffuse_tui.presenter.spans import Line, Tone

ROWS = 6
_LABEL = 24


class Taken(NamedTuple):
    """A key was for the list: the text that the prompt has now (None: as it is), sent or not."""

    text: str | None = None
    send: bool = False


class Completions(Static):
    """Shows matches while a command is typed. Tab, Enter or a click takes one, Esc hides it."""

    class Chosen(Message):
        """A click took this text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__("", id="completions", markup=False)
        self.display = False
        self._matches: tuple[Match, ...] = ()
        self._at = 0
        self._moved = False
        self._hidden_for: str | None = None

    @property
    def offered(self) -> tuple[Match, ...]:
        """What is shown, or would be if it were not hidden."""
        return self._matches

    def offer(self, matches: tuple[Match, ...], typed: str) -> None:
        """Show `matches` for what is typed; none, or only what is typed already: hide."""
        if self._hidden_for is not None and not typed.startswith(self._hidden_for):
            self._hidden_for = None
        if matches != self._matches:
            self._matches, self._at, self._moved = matches, 0, False
        self.display = bool(matches) and self._hidden_for is None
        if self.display:
            self._draw()

    def press(self, key: str, typed: str) -> Taken | None:
        """What a key does to the list; None when it is not for it."""
        if not self.display:
            return None
        from diffuse_tui.presenter.slash import is_name, runs_alone

        match key:
            case "down" | "up":
                self._at = (self._at + (1 if key == "down" else -1)) % len(self._matches)
                self._moved = True
                self._draw()
                return Taken()
            case "escape":
                self._hidden_for = typed
                self.display = False
                return Taken()
            case "tab":
                return Taken(self._matches[self._at].text)
            case "enter" if self._moved or (" " not in typed and not is_name(typed)):
                text = self._matches[self._at].text
                if self._matches[self._at].text == typed:
                    return None
                return Taken(text, send=runs_alone(text))
        return None

    def on_click(self, event: Click) -> None:
        """Take the line that was clicked."""
        index = self._first() + event.y
        if index < len(self._matches):
            self.post_message(self.Chosen(self._matches[index].text))

    def _first(self) -> int:
        return max(0, min(self._at - ROWS // 2, len(self._matches) - ROWS))

    def _draw(self) -> None:
        first = self._first()
        lines: list[Line] = []
        for index, match in enumerate(self._matches[first : first + ROWS], first):
            here = index == self._at
            tone: Tone = "strong" if here else "accent"
            label = f"{'› ' if here else '  '}{clean_line(match.label)}"
            what = f" {clean_line(match.what)}" if match.what else ""
            lines.append((Span(f"{label:<{_LABEL}}" if what else label, tone), Span(what, "dim")))
        self.update(content(lines))
