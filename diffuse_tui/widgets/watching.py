"""Values that widgets follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.dom import DOMNode


def forget_closed(followed: DOMNode, name: str) -> None:
    """Let go of the closed widgets that followed the value `name` of `followed`.

    Textual does so only when the value changes, which the theme may never do again.
    """
    followers = getattr(followed, "__watchers", {}).get(name, [])
    followers[:] = [each for each in followers if not each[0]._closing]
