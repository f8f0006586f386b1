"""Between the archive and files that users name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError, UsageError
from diffuse_tui.archive.files import read_bytes, write_export
from diffuse_tui.presenter.export import JSON, MARKDOWN, file_text, slug
from diffuse_tui.presenter.export_json import MAX_BYTES, from_json

if TYPE_CHECKING:
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import Dialogue


def export(archive: Archive, number: int, typed: str, ending: str = MARKDOWN) -> Path:
    """Write a kept conversation to a new file. See `export_dialogue`."""
    dialogue = archive.load(number)
    if dialogue is None:
        raise UsageError("that conversation is not there any more")
    return export_dialogue(dialogue, typed, ending)


def export_dialogue(dialogue: Dialogue, typed: str, ending: str = MARKDOWN) -> Path:
    """Write a conversation to a new file; where it was written.

    Args:
        dialogue: The conversation.
        typed: A file (`.json` gives JSON, all else Markdown), a directory, or nothing.
        ending: `.md` or `.json`, where `typed` does not tell.

    Raises:
        UsageError: it cannot be written there.
    """
    if Path(typed.strip()).suffix.casefold() == JSON:
        ending = JSON
    return write_export(typed, slug(dialogue.title), ending, file_text(dialogue, ending))


def import_file(archive: Archive, typed: str) -> int:
    """Keep a conversation that was exported as JSON; its id.

    Raises:
        UsageError: there is no such file, or it is none of a conversation.
        DiffuseError: it cannot be kept.
    """
    number = archive.add(from_json(read_bytes(typed, MAX_BYTES)))
    if not number:
        raise DiffuseError("it could not be kept; free some space on the disk")
    return number
