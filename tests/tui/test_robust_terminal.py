"""The app as a process in a pseudo-terminal: defects, stops and foreign words."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tui_terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import asyncio, logging, os, sys, warnings
sys.path.insert(0, "tests/tui")
from pathlib import Path
from textual.binding import Binding
from tui_fakes import Node, served
from diffuse_tui.app import DiffuseApp
from diffuse_tui.quiet import quiet

SECRET = "what was asked"
there = Node()
there.first.show(served())

class App(DiffuseApp):
    CSS_PATH = [Path("diffuse_tui").absolute() / sheet for sheet in DiffuseApp.CSS_PATH]
    BINDINGS = [Binding("f11", "boom"), Binding("f12", "noise")]

    def action_boom(self):
        prompt = SECRET
        raise ValueError(f"cannot draw {prompt}")

    def action_noise(self):
        os.write(2, b"a C library speaks\\n")
        print("printed", file=sys.stderr)
        logging.getLogger("library").error("logged")
        warnings.warn("warned")
        self.notify("noise made")

async def main(state):
    app = App(there.attach, state=state)
    with quiet(state):
        await app.run_async()
    print(app.last_words, file=sys.stderr)
    return app.return_code

code = asyncio.run(main(Path(sys.argv[1])))
print("LEFT", code)
sys.exit(code)
"""
LEFT_ALT_SCREEN = b"\x1b[?1049l"
NO_MOUSE = b"\x1b[?1000l"
F11, F12 = b"\x1b[23~", b"\x1b[24~"


def started(state: Path) -> Terminal:
    """The app over a fake node, once it shows it."""
    opened = Terminal("-c", SCRIPT, str(state))
    opened.shows("Fragile")
    return opened


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    opened = started(tmp_path / "state")
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_defect_gives_the_terminal_back_and_tells_one_line(
    terminal: Terminal, tmp_path: Path
) -> None:
    assert b"\x1b]2;Diffuse" in terminal.output
    terminal.key(F11)
    terminal.read_until(None)
    assert terminal.child.wait(10) == 1
    drawn, left, after = terminal.output.rpartition(LEFT_ALT_SCREEN)
    assert left
    assert NO_MOUSE in drawn
    assert b"\x1b[23;2t" in drawn, "the terminal's title was not given back"
    lines = after.decode().replace("\r", "").split("\n")
    told = [line for line in lines if "diffuse-tui: a defect" in line]
    assert len(told) == 1
    assert "Traceback" not in after.decode()
    (report,) = (tmp_path / "state").glob("crash-*.txt")
    assert str(report) in told[0]
    assert report.stat().st_mode & 0o777 == 0o600
    text = report.read_text()
    assert "builtins.ValueError" in text
    assert "in action_boom" in text
    assert "what was asked" not in text
    assert "what was asked" not in terminal.output.decode(errors="replace")


@pytest.mark.slow
def test_what_libraries_say_goes_to_a_file_and_not_over_the_screen(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.key(b"\x1b")
    terminal.key(F12)
    terminal.shows("noise made")
    terminal.key(b"\x11")
    terminal.read_until(b"LEFT 0")
    assert b"\x1b[23;2t" in terminal.output, "the terminal's title was not given back"
    said = (tmp_path / "state" / "app.log").read_text()
    for words in ("a C library speaks", "ERROR library logged", "UserWarning: warned"):
        assert words in said
    shown = terminal.output.decode(errors="replace")
    for words in ("a C library speaks", "printed", "library logged", "warned"):
        assert words not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
@pytest.mark.parametrize(
    ("keys", "shown"),
    # The cursor stands on the first letter.
    [(b"\x10", "earch for commands"), (b"\x1bOP", "Esc closes"), (b"Hello\r", "answering")],
    ids=["palette", "help", "answering"],
)
def test_a_signal_gives_the_terminal_back_whatever_is_open(
    terminal: Terminal, keys: bytes, shown: str, number: int, code: int
) -> None:
    terminal.key(keys)
    terminal.shows(shown)
    terminal.child.send_signal(number)
    terminal.read_until(None)
    assert terminal.child.wait(10) == code
    assert terminal.output.rpartition(LEFT_ALT_SCREEN)[1]
    assert NO_MOUSE in terminal.output


@pytest.mark.slow
def test_a_stopped_app_leaves_the_screen_and_comes_back(terminal: Terminal) -> None:
    os.kill(terminal.child.pid, signal.SIGTSTP)
    terminal.read_until(LEFT_ALT_SCREEN)
    # Really stopped: told to go on before, it would stop afterwards and for good.
    _, status = os.waitpid(terminal.child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    before = len(terminal.output)
    os.kill(terminal.child.pid, signal.SIGCONT)
    limit = time.monotonic() + 10
    while b"Fragile" not in terminal.output[before:]:
        assert time.monotonic() < limit
        if select.select([terminal.master], [], [], 0.5)[0]:
            terminal.output += os.read(terminal.master, 65536)
    assert b"\x1b[?1049h" in terminal.output[before:]
    terminal.key(b"\x11")
    terminal.read_until(b"LEFT 0")
