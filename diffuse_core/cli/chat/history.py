"""What was typed in chats, kept for the Up key in a file of its owner's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "chat_history"
MAX_ENTRIES = 1_000
MAX_BYTES = 2**20
"""Of all entries together; older ones go."""
MAX_ENTRY = 16_384
"""Characters of an entry; a longer one is not kept."""


class History:
    """Entries of earlier chats and this one, oldest first; each is written down at once.

    The file has one JSON string a line, and mode 0600. What cannot be read or written is done
    without: `problem` tells why, once.

    Args:
        directory: Where the file is; None to keep none.
    """

    def __init__(self, directory: Path | None) -> None:
        self._storage = None if directory is None else FileStorage(directory)
        self.problem = ""
        self.entries: list[str] = self._read()

    def add(self, text: str) -> None:
        """Keep an entry, unless it is the newest already."""
        if not text.strip() or len(text) > MAX_ENTRY or self.entries[-1:] == [text]:
            return
        # What other chats have kept meanwhile stays.
        if self._storage is not None:
            self.entries = self._read() or self.entries
        self.entries.append(text)
        self._write()

    def _read(self) -> list[str]:
        if self._storage is None:
            return []
        try:
            data = self._storage.read(FILE)
        except UsageError as error:
            self._give_up(error)
            return []
        lines = (data or b"")[-MAX_BYTES:].splitlines()
        entries = []
        for line in lines[-MAX_ENTRIES:]:
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                entries.append(msgspec.json.decode(line, type=str)[:MAX_ENTRY])
        return entries

    def _write(self) -> None:
        del self.entries[:-MAX_ENTRIES]
        if self._storage is None:
            return
        lines = [msgspec.json.encode(_encodable(entry)) for entry in self.entries]
        size = 0
        for count, line in enumerate(reversed(lines)):
            size += len(line) + 1
            if size > MAX_BYTES:
                del lines[: len(lines) - count]
                break
        try:
            self._storage.write(FILE, b"".join(line + b"\n" for line in lines))
        except UsageError as error:
            self._give_up(error)

    def _give_up(self, error: UsageError) -> None:
        self._storage = None
        self.problem = f"what is typed is not kept: {error}"


def _encodable(text: str) -> str:
    """Half surrogates come from bytes that are no UTF-8."""
    return text.encode("utf-8", "replace").decode()
