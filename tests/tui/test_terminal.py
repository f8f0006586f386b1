"""The app as a process in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "numpy", "websockets", "tokenizers", "gguf", "nacl")
SCRIPT = """
import asyncio, sys
from diffuse_tui.app import DiffuseApp

async def never():
    await asyncio.Event().wait()

app = DiffuseApp(never)
app.run()
heavy = [name for name in {heavy} if name in sys.modules]
print("HEAVY", heavy)
sys.exit(app.return_code)
"""


class Terminal:
    """A child on a pseudo-terminal of 120 x 40."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        self.child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(heavy=HEAVY)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env=env,
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def read_until(self, text: bytes | None, deadline: float = 15.0) -> None:
        """Read until `text` (or the end) appears; fails at the deadline."""
        limit = time.monotonic() + deadline
        while text is None or text not in self.output:
            left = limit - time.monotonic()
            assert left > 0, self.output[-2000:]
            if not select.select([self.master], [], [], left)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                assert text is None, self.output[-2000:]
                return
            self.output += data

    def close(self) -> None:
        """End the child whatever it does."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self.master)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_gives_the_terminal_back(number: signal.Signals, code: int) -> None:
    terminal = Terminal()
    try:
        terminal.read_until(b"Connecting")
        assert b"\x1b[?1049h" in terminal.output
        terminal.child.send_signal(number)
        terminal.read_until(None)
        assert terminal.child.wait(10) == code
    finally:
        terminal.close()
    left = terminal.output.rpartition(b"\x1b[?1049l")
    assert left[1], "the alternate screen was not left"
    assert b"\x1b[?1000l" in terminal.output, "mouse reporting was left on"
    assert b"HEAVY []" in left[2]
