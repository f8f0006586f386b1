"""A line to type in whose keys take effect in the order in which they were pressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

if TYPE_CHECKING:
    from textual.events import Key


class TypedLine(Input):
    """One line of text without a frame.

    An Input puts letters in at once, but leaves its other keys to the bindings, which come round
    later: what is typed fast after Ctrl+U, or by a terminal that lags, would be deleted with the
    rest, and Enter would send half of it.

    Args:
        placeholder: What stands there while nothing is typed.
        most: Characters at most; 0 for no limit.
        restrict: A pattern that all that is typed has to match.
        select: Whether the text is selected, so that typing begins anew, when it gets the focus.
        id: The widget's id.
    """

    DEFAULT_CSS = """
    TypedLine, TypedLine:focus { height: 1; border: none; padding: 0 1; background: $panel; }
    """

    def __init__(
        self,
        placeholder: str = "",
        *,
        most: int = 0,
        restrict: str | None = None,
        select: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(
            placeholder=placeholder,
            max_length=most,
            restrict=restrict,
            select_on_focus=select,
            compact=True,
            id=id,
        )
        # A blinking cursor would keep an idle app drawing.
        self.cursor_blink = False

    async def on_key(self, event: Key) -> None:
        """Do now what a key of the line's own is bound to."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)
            return
