"""A chat on a terminal of its own, in a process of its own, with a network that is made up."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

HERE = str(Path(__file__).parent)
PATIENCE_S = 30.0
PROMPT = ">"
COLUMNS, ROWS = 80, 24
# Answers: "slow" streams until it is stopped, "deaf" cannot be stopped, others are the question.
PROGRAM = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from chat_fakes import ROUTE, Network, finished
from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.domain.view import RouteChosen, TextDelta

async def script(request):
    question = request.messages[-1].content
    yield RouteChosen(ROUTE, 3)
    if question in ("slow", "deaf"):
        yield TextDelta("word word", (1,))
        try:
            await asyncio.Event().wait()
        finally:
            if question == "deaf":
                await asyncio.sleep(3600)
    yield TextDelta(f"<{question}>" + chr(27) + "]0;bad" + chr(7), (1,))
    yield finished()

network = Network()
network.script = script
wiring.keep_network = network.keep
sys.exit(run(["chat", *sys.argv[2:]]))
"""


class Terminal:
    """What the chat draws, and keys for it."""

    def __init__(self, state: Path, *options: str, term: str = "xterm") -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (ROWS, COLUMNS))
        self.before = termios.tcgetattr(self.slave)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DIFFUSE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, HERE, *options, "--state-dir", str(state)],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env={**environment, "TERM": term, "NO_COLOR": "1"},
            preexec_fn=own_terminal,
        )  # fmt: skip
        self.raw = b""
        self._seen = 0

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self.master, keys.encode())

    def wait_for(self, words: str) -> str:
        """Read until these words were drawn after those waited for before; all up to them."""
        end = time.monotonic() + PATIENCE_S
        while True:
            text = plain(self.raw)
            if (at := text.find(words, self._seen)) >= 0:
                before, self._seen = self._seen, at + len(words)
                return text[before : self._seen]
            ready = select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, f"{words!r} did not come, but {text[self._seen :]!r}"
            self.raw += self._read()

    def ended(self) -> int:
        """Wait for the end of the program; its exit code, and -1 where the terminal is changed."""
        end = time.monotonic() + PATIENCE_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < end, "it goes on"
            if select.select([self.master], [], [], 0.01)[0]:
                self.raw += self._read()
        same = termios.tcgetattr(self.slave) == self.before
        return code if same else -1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def _read(self) -> bytes:
        with contextlib.suppress(OSError):
            return os.read(self.master, 65_536)
        return b""


def own_terminal() -> None:
    """Make stdin the terminal that keys such as Ctrl+C come from."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(raw: bytes) -> str:
    """What was drawn, without the ways to draw it."""
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", b"", raw)
    return text.decode("utf-8", "replace").replace("\r", "")


@contextlib.contextmanager
def opened(state: Path, *options: str, term: str = "xterm") -> Iterator[Terminal]:
    """A terminal whose chat waits for a question."""
    terminal = Terminal(state, *options, term=term)
    try:
        terminal.wait_for("Try /help")
        terminal.wait_for(PROMPT)
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal.slave)
