"""The terminal that a command runs in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class ScreenFacts:
    """`size` is columns and rows; None where stdout is no terminal."""

    term: str
    encoding: str
    size: tuple[int, int] | None
    no_color: bool
    true_color: bool
    tmux: bool
    remote: bool


def screen_facts() -> ScreenFacts:
    """Those of stdout and the environment."""
    size = None
    try:
        if sys.stdout.isatty():
            found = os.get_terminal_size(sys.stdout.fileno())
            size = (found.columns, found.lines)
    except (OSError, ValueError):
        size = None
    environment = os.environ
    return ScreenFacts(
        term=environment.get("TERM", "")[:64],
        encoding=(sys.stdout.encoding or "ascii").lower(),
        size=size,
        no_color=bool(environment.get("NO_COLOR")),
        true_color=environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"),
        tmux="TMUX" in environment or environment.get("TERM", "").startswith(("tmux", "screen")),
        remote="SSH_CONNECTION" in environment,
    )
