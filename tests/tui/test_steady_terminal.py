"""A terminal that stops reading, that goes away, and that sends what no terminal sends."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from test_robust_terminal import started

from diffuse_tui.leaving import HARD_EXIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tui_terminal import Terminal

ODD = (
    b"\xff\xfe\x80 no text",
    b"\x1b[200~pasted in Latin-1: \xe4\xf6\xfc\x1b[201~",
    b"\x1b[27;5;99999999999~",
    b"\x1b[99999999999;2u",
    b"\x1b[<0;99999;99999M",
)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = started(tmp_path / "state")
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_app_though_its_terminal_does_not_read(
    terminal: Terminal, number: int, code: int
) -> None:
    # The help, opened and closed: more than anybody keeps who does not read.
    terminal.key(b"\x1bOP" * 600)
    time.sleep(2)
    terminal.child.send_signal(number)
    assert terminal.child.wait(2 * HARD_EXIT_S) == code
    os.close(terminal.master)


@pytest.mark.slow
def test_the_app_ends_when_its_terminal_is_gone_and_nobody_says_so(terminal: Terminal) -> None:
    os.close(terminal.master)
    # That nothing can be said any more is all that is wrong.
    assert terminal.child.wait(2 * HARD_EXIT_S) in (1, 129)


@pytest.mark.slow
def test_what_no_terminal_sends_does_no_harm(terminal: Terminal) -> None:
    for odd in ODD:
        terminal.key(odd)
        time.sleep(0.2)  # Each by itself: a broken one may take what comes with it along.
    terminal.key(b"\x1bOP")
    terminal.shows("Esc closes")
    terminal.key(b"\x11")
    terminal.read_until(b"LEFT 0")
