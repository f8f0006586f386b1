"""The app as a process in a pseudo-terminal."""

from __future__ import annotations

import signal

import pytest
from tui_terminal import Terminal

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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_gives_the_terminal_back(number: signal.Signals, code: int) -> None:
    terminal = Terminal("-c", SCRIPT.format(heavy=HEAVY))
    try:
        terminal.read_until(b"Connecting")
        assert b"\x1b[?1049h" in terminal.output
        assert terminal.end(number) == code
    finally:
        terminal.close()
    left = terminal.output.rpartition(b"\x1b[?1049l")
    assert left[1], "the alternate screen was not left"
    assert b"\x1b[?1000l" in terminal.output, "mouse reporting was left on"
    assert b"HEAVY []" in left[2]
