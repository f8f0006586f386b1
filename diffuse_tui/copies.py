"""Where copied text goes when the terminal may not hand it on: into a file, and it is said."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from diffuse_tui.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "copied.txt"
MAX_TERMINAL = 74_000
"""Characters beyond which common terminals drop what they are sent."""
MAX_FILE = 4_000_000

_BETWEEN = ("TMUX", "STY", "SSH_CONNECTION", "SSH_TTY")
"""Set where the text passes through something that drops it silently unless told otherwise."""
_DEAF = ("linux", "vt100", "dumb")


class Copies:
    """Keeps the last copied text in a file of the owner, where the terminal is in doubt.

    Args:
        directory: Where the file goes; None: nowhere.
        environ: The environment, which tells of the terminal.
    """

    def __init__(self, directory: Path | None, environ: Mapping[str, str] = os.environ) -> None:
        self._directory = directory
        self._environ = environ

    def doubt(self, text: str) -> str:
        """Why the clipboard may not have got `text`, "" when that is likely to have worked."""
        between = [name for name in _BETWEEN if self._environ.get(name)]
        if len(text) > MAX_TERMINAL:
            return f"{len(text):,} characters are more than most terminals take"
        if self._environ.get("TERM", "") in _DEAF:
            return "this terminal has none"
        if between:
            through = "tmux or screen" if between[0] in ("TMUX", "STY") else "ssh"
            return f"through {through} it may not arrive"
        return ""

    def told(self, text: str, what: str) -> str:
        """What is said of a copy; writes the file where there is doubt."""
        sent = f"{what} sent to the terminal's clipboard (OSC 52"
        doubt = self.doubt(text)
        if not doubt:
            return f"{sent}; some terminals ignore it)"
        path = self._write(text)
        return f"{sent}; {doubt})" if path is None else f"{sent}; {doubt}), and kept in {path}"

    def _write(self, text: str) -> Path | None:
        if self._directory is None or len(text) > MAX_FILE:
            return None
        path = self._directory / NAME
        data = text.encode("utf-8", "replace")
        try:
            with os.fdopen(open_private(path), "wb") as file:
                file.write(data)
        except OSError:
            return None
        return path
