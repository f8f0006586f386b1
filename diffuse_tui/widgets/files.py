"""Files from where the app runs: read into the prompt, and found while a path is typed."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from diffuse_core.domain.context import MAX_CHARS
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.widget import Widget

    from diffuse_tui.presenter.spans import Tone
    from diffuse_tui.widgets.prompt import Prompt

READ_S = 20.0
"""How long a disk may take."""


class Files:
    """Reads in threads, so that a slow disk keeps nobody from typing.

    Args:
        owner: The widget whose end ends the work.
        prompt: Where a file's text goes.
        say: Shows a note.
    """

    def __init__(
        self, owner: Widget, prompt: Prompt, say: Callable[[str | None, Tone], None]
    ) -> None:
        self._owner = owner
        self._prompt = prompt
        self._say = say

    def attach(self, path: str) -> None:
        """Put the text of a file into the prompt as a chip, or say why not."""
        work: Callable[[], Awaitable[None]] = functools.partial(self._read, path)
        self._owner.run_worker(work, group="attach")

    async def _read(self, path: str) -> None:
        from diffuse_core.text_files import read_text_file

        try:
            async with asyncio.timeout(READ_S):
                file = await asyncio.to_thread(read_text_file, path, MAX_CHARS)
        except (DiffuseError, TimeoutError) as error:
            self._say(str(error) or f"{path} could not be read in time", "bad")
            if not self._prompt.text:
                self._prompt.put(f"/attach {path}")
            return
        self._prompt.attach(file.name, file.text)
        self._say(file.note or None, "warning")

    def find(self, typed: str, path: str, found: Callable[[tuple[str, ...]], None]) -> None:
        """Tell which paths begin as `path`, if the prompt holds `typed` still."""
        # A callable and no coroutine, which would be left over when the next one comes at once.
        work: Callable[[], Awaitable[None]] = functools.partial(self._find, typed, path, found)
        self._owner.run_worker(work, group="paths", exclusive=True)

    async def _find(self, typed: str, path: str, found: Callable[[tuple[str, ...]], None]) -> None:
        from diffuse_tui.archive.paths import matching_paths

        try:
            async with asyncio.timeout(READ_S):
                paths = await asyncio.to_thread(matching_paths, path)
        except TimeoutError:
            return
        if self._prompt.text == typed:
            found(paths)
