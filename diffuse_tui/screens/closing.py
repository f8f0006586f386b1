"""Screens that close once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from textual.await_complete import AwaitComplete

if TYPE_CHECKING:
    from textual.screen import Screen


class ClosesOnce:
    """Of two keys that close a Screen, the second does nothing. To be named before Screen.

    Keys wait in line, and closing takes away whatever is on top by then: a second Esc, pressed
    fast, would close the screen below too, and at the last one end the app.
    """

    # No Screen itself: Textual looks for what its own screens bring in the first one only.
    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close, if it is open still, and nothing over it."""
        on_top: object = cast("Screen[Any]", self).app.screen
        if on_top is not self:
            return AwaitComplete()
        return super().dismiss(result)  # type: ignore[misc, no-any-return]
