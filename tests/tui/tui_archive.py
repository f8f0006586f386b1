"""What another app may have written into an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.archive.transaction import all_or_nothing
from diffuse_tui.archive.trouble import otherwise

if TYPE_CHECKING:
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import KeptTurn


@otherwise(None)
def put_turn(archive: Archive, number: int, turn: KeptTurn, at: float) -> None:
    """Keep a turn in the place of one with its number, whoever wrote that."""
    with all_or_nothing(archive._database):
        if archive._touch(number, at):
            archive._put(number, (turn,))
