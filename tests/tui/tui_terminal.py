"""A program on a pseudo-terminal: keys go in, and what it draws is read."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Terminal:
    """A Python child on a terminal of 100 x 30; `arguments` are those of the interpreter."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def key(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def read_until(self, text: bytes | None, deadline: float = PATIENCE_S) -> None:
        """Read until `text` (or the end, for None) appears; fails at the deadline."""
        limit = time.monotonic() + deadline
        while text is None or text not in self.output:
            left = limit - time.monotonic()
            assert left > 0, self.output[-3000:]
            if not select.select([self.master], [], [], left)[0]:
                continue
            data = b""
            with contextlib.suppress(OSError):
                data = os.read(self.master, 65536)
            if not data:
                assert text is None, self.output[-3000:]
                return
            self.output += data

    def shows(self, text: str) -> None:
        """Wait for a text that is drawn in one style, and so comes in one piece."""
        self.read_until(text.encode())

    def end(self, number: signal.Signals) -> int:
        """Send a signal and read to the end: who is not read cannot end. The exit status."""
        self.child.send_signal(number)
        self.read_until(None)
        return self.child.wait(PATIENCE_S)

    def close(self) -> None:
        """End the child whatever it does."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        with contextlib.suppress(OSError):
            os.close(self.master)
