"""Going on when the disk does not: what the archive's calls give back then, and who is told."""

from __future__ import annotations

import functools
import sqlite3
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from diffuse_tui.archive.opening import is_damage, suspect

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_MS = 50
"""How long a call waits for another app once one waited in vain."""

Given = ParamSpec("Given")
Back = TypeVar("Back")


class MayFail:
    """What tells, once, that something cannot be kept or read.

    Attributes:
        notice: What the user should be told; empty when nothing. Whoever tells it empties it.
        on_trouble: Called with the text of the first trouble, in the place of `notice`.
    """

    _database: sqlite3.Connection

    def __init__(self, path: str) -> None:
        self.notice = ""
        self.on_trouble: Callable[[str], None] | None = None
        self._troubled = path
        self._told = False

    def wait_less(self) -> None:
        """The file was waited for in vain: the next calls must not hold up the screen so long."""
        self._database.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")

    def tell_trouble(self, error: Exception) -> None:
        """Something could not be kept or read: say so, the first time."""
        if isinstance(error, sqlite3.Error) and is_damage(error):
            suspect(self._troubled)
        if self._told:
            return
        self._told = True
        text = (
            f"conversations are not kept any more: {self._troubled} cannot be used ({error}); "
            "the chat goes on without"
        )
        if self.on_trouble is not None:
            self.on_trouble(text)
        else:
            self.notice = text


def is_busy(error: Exception) -> bool:
    """Whether another process keeps the file to itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY


def otherwise(
    value: Any,
) -> Callable[[Callable[Given, Back]], Callable[Given, Back]]:
    """For methods of a MayFail: where the disk does not take or give something, give `value`."""

    def decorate(method: Callable[Given, Back]) -> Callable[Given, Back]:
        @functools.wraps(method)
        def call(*given: Given.args, **named: Given.kwargs) -> Back:
            try:
                return method(*given, **named)
            except (sqlite3.Error, OSError) as error:
                archive = given[0]
                assert isinstance(archive, MayFail)  # noqa: S101 - it decorates methods only
                if is_busy(error):
                    archive.wait_less()
                archive.tell_trouble(error)
                back: Back = value
                return back

        return call

    return decorate
