"""What Tab completes in a chat: commands, and what may follow them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.cli.chat.commands import COMMANDS
from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_MATCHES = 100
MAX_ENTRIES = 20_000
"""Of a directory that are looked at."""
_FILES = ("save", "load", "attach")


class Words:
    """Completes what is typed.

    Args:
        models: Names of models that are known.
        settings: Names of what `/set` sets.
    """

    def __init__(self, models: Callable[[], Iterable[str]], settings: Iterable[str]) -> None:
        self._models = models
        self._settings = tuple(settings)

    def complete(self, text: str) -> list[str]:
        """Whole texts that begin as this one; nothing for a question."""
        head, space, rest = text.partition(" ")
        if not space:
            found: Iterable[str] = (_named(each.name, each.argument) for each in COMMANDS)
        else:
            before = f"{head} "
            found = (before + word for word in self._arguments(head[1:].lower(), rest))
        shown = (each for each in found if each.startswith(text) and clean_line(each) == each)
        return list(itertools.islice(shown, MAX_MATCHES))

    def _arguments(self, name: str, typed: str) -> Iterable[str]:
        if name == "model":
            return sorted(self._models())
        if name in ("set", "params"):
            setting, space, _ = typed.partition(" ")
            if space and setting in ("speculation", "timings"):
                return (f"{setting} on", f"{setting} off")
            return (f"{each} " for each in self._settings)
        return _paths(typed) if name in _FILES else ()


def _named(name: str, argument: str) -> str:
    return f"/{name} " if argument else f"/{name}"


def _paths(typed: str) -> Iterator[str]:
    """Paths that begin as the typed one; directories end with a slash."""
    folder, _, begun = typed.rpartition("/")
    lead = f"{folder}/" if "/" in typed else ""
    try:
        where = Path(lead or ".").expanduser()
        with os.scandir(where) as entries:
            found = [
                entry.name + ("/" if entry.is_dir() else "")
                for entry in itertools.islice(entries, MAX_ENTRIES)
                if entry.name.startswith(begun) and (begun or not entry.name.startswith("."))
            ]
    except (OSError, RuntimeError, ValueError):
        return
    for name in sorted(found):
        yield lead + name
