"""The line above the prompt: how the chat stands, and what Enter and the letters do now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.context import MAX_CHARS
from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.chips import CHIP_CHARS

if TYPE_CHECKING:
    from diffuse_tui.presenter.spans import Tone


class ChatState(NamedTuple):
    """What the line depends on. `chars` is the length of what would be sent."""

    busy: bool = False
    stopping: bool = False
    queued: str | None = None
    refusal: str | None = None
    editing: bool = False
    typing: bool = True
    chars: int = 0


def state_note(state: ChatState) -> tuple[str, Tone]:
    """The most important thing to say, and its tone; `dim` for what is only a hint."""
    if state.stopping and state.busy:
        return "stopping…", "warning"
    if state.queued is not None:
        return f"queued: {clean_line(state.queued, 60)}", "accent"
    if state.busy:
        return "answering · Esc stops", "accent"
    if state.editing:
        return "editing the last question · Enter asks anew · Esc: leave it as it was", "accent"
    if state.refusal is not None:
        return f"cannot answer yet: {state.refusal}", "warning"
    if state.chars > MAX_CHARS:
        return f"too long: {state.chars:,} characters, at most {MAX_CHARS:,} can be sent", "bad"
    if not state.typing:
        return "c or F3 to type again · letters are commands · F1 lists them", "dim"
    if state.chars > CHIP_CHARS:
        count = f"{state.chars:,} characters (at most {MAX_CHARS:,})"
        return f"Enter sends {count} · Ctrl+O expands what was pasted", "dim"
    return "Enter sends · Alt+Enter new line · / lists commands", "dim"
