"""What the main screen hands every newer picture to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffuse_tui.presenter.facts import Facts


class Follower:
    """A screen over the main one that follows the network though it is no full screen."""

    def show(self, facts: Facts) -> None:
        """A newer picture came."""
        raise NotImplementedError
