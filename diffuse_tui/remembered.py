"""What the app remembers of how it was left: a small file in the state directory."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from diffuse_tui.private_file import open_private, read_kept

if TYPE_CHECKING:
    from pathlib import Path

FILE = "app.json"
MAX_BYTES = 65536


class Remembered:
    """Values by name, written for nobody else's eyes. What cannot be read is forgotten.

    Args:
        directory: The state directory; None to remember nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._file = None if directory is None else directory / FILE
        self._values = self._read()

    def text(self, name: str) -> str | None:
        """The text kept under `name`; None when there is none, or none that is a text."""
        value = self._values.get(name)
        return value if isinstance(value, str) else None

    def keep(self, name: str, value: str) -> None:
        """Keep `value`, also for the next time where that is possible."""
        self._values[name] = value
        if self._file is None:
            return
        # A full or read-only disk must not take the app down for a colour.
        fresh = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            try:
                with os.fdopen(open_private(fresh), "wb") as file:
                    file.write(msgspec.json.encode(self._values))
                fresh.replace(self._file)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise

    def _read(self) -> dict[str, object]:
        if self._file is None:
            return {}
        with suppress(OSError, msgspec.DecodeError, RecursionError):
            kept = read_kept(self._file, MAX_BYTES)
            return msgspec.json.decode(kept, type=dict[str, object])
        return {}
