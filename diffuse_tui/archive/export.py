"""Between conversations and files that users name: in a thread, for it may take a while."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from diffuse_core.domain.saved_chat import MAX_BYTES
from diffuse_core.errors import UsageError
from diffuse_core.text_files import read_bytes, write_export
from diffuse_tui.presenter.export import JSON, MARKDOWN, file_text, slug
from diffuse_tui.presenter.export_json import from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_tui.presenter.dialogue import Dialogue

DISK_S = 20.0
"""How long a disk may take."""

Given = ParamSpec("Given")
Back = TypeVar("Back")


async def export_dialogue(dialogue: Dialogue, typed: str, ending: str = MARKDOWN) -> Path:
    """Write a conversation to a new file; where it was written.

    Args:
        dialogue: The conversation.
        typed: A file (`.json` gives JSON, all else Markdown), a directory, or nothing.
        ending: `.md` or `.json`, where `typed` does not tell.

    Raises:
        UsageError: it cannot be written there.
    """
    return await _in_thread(_write, dialogue, typed, ending)


async def read_export(typed: str) -> Dialogue:
    """A conversation that was exported as JSON.

    Raises:
        UsageError: there is no such file, or it is none of a conversation.
    """
    return await _in_thread(_read, typed)


def _write(dialogue: Dialogue, typed: str, ending: str) -> Path:
    if Path(typed.strip()).suffix.casefold() == JSON:
        ending = JSON
    return write_export(typed, slug(dialogue.title), ending, file_text(dialogue, ending))


def _read(typed: str) -> Dialogue:
    return from_json(read_bytes(typed, MAX_BYTES))


async def _in_thread(
    work: Callable[Given, Back], *given: Given.args, **named: Given.kwargs
) -> Back:
    try:
        async with asyncio.timeout(DISK_S):
            return await asyncio.to_thread(work, *given, **named)
    except TimeoutError as error:
        raise UsageError(f"the disk took more than {DISK_S:.0f} s; try another one") from error
