"""A process that outlives the one that started it, unless it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from diffuse_tui.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

POLL_S = 0.1


class Detached:
    """A child with a session of its own: nothing that happens to us or our terminal ends it.

    Not of asyncio: that ends its children when their transports go, with the loop at the latest.

    Args:
        command: The command line.
        log: Where its output goes, for nobody else's eyes; an existing file is written anew.
            It is only ever added to, so that others may do so as well.
        environment: Its environment.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        with os.fdopen(open_private(log, append=True), "wb") as output:
            output.truncate(0)
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs. Looking also clears away what is left of it."""
        return self._process.poll()

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        while (status := self.status) is None:  # noqa: ASYNC110 - the system tells nobody
            await asyncio.sleep(POLL_S)
        return status

    def ask(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    async def end(self, seconds: float) -> None:
        """Ask it to end, and after so many seconds end it by force."""
        if self.status is not None:
            return
        self.ask()
        try:
            async with asyncio.timeout(seconds):
                await self.ended()
        except TimeoutError:
            self._process.kill()
            await self.ended()

    def let_go(self) -> None:
        """It goes on without us, which is meant: no warning that it still runs."""
        if self._process.returncode is None:
            self._process.returncode = 0
