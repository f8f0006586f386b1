"""A chat on a terminal: keys, signals, and what the terminal is like afterwards."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from chat_terminal import PROMPT, opened

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
CTRL_C, CTRL_D, CTRL_J, CTRL_R, UP = "\x03", "\x04", "\n", "\x12", "\x1b[A"
ALT_ENTER, ENTER = "\x1b\r", "\r"
PASTE = "\x1b[200~{}\x1b[201~"


def test_a_conversation(tmp_path: Path) -> None:
    with opened(tmp_path) as terminal:
        terminal.send(f"one{ENTER}")
        # What comes from the network does not command the terminal.
        assert "<one>␛]0;bad␇" in terminal.wait_for("␇")
        terminal.wait_for(PROMPT)
        terminal.send(f"two{ALT_ENTER}lines{CTRL_J}more{ENTER}")
        terminal.wait_for("<two\nlines\nmore>")
        terminal.wait_for(PROMPT)
        terminal.send(PASTE.format("a\r/quit\rb"))
        terminal.wait_for("b")
        terminal.send(ENTER)
        terminal.wait_for("<a\n/quit\nb>")
        terminal.wait_for(PROMPT)
        terminal.send(f"{CTRL_R}two")
        terminal.wait_for("more")
        terminal.send(f"{ENTER}{ENTER}")
        terminal.wait_for("<two\nlines\nmore>")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.ended() == 0
        assert b"\x1b]0;" not in terminal.raw
        # No colours, and nothing that a terminal would answer.
        assert b"\x1b[6n" not in terminal.raw
    lines = (tmp_path / "chat_history").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        "one",
        "two\nlines\nmore",
        "a\n/quit\nb",
        "two\nlines\nmore",
    ]


def test_tab_completes_and_up_recalls(tmp_path: Path) -> None:
    with opened(tmp_path, "--no-history") as terminal:
        terminal.send("/stats")
        terminal.wait_for("/stats")
        terminal.send(ENTER)
        terminal.wait_for("there was no answer yet")
        terminal.wait_for(PROMPT)
        terminal.send("/temp\t")
        terminal.send("\x15/he\t")
        terminal.wait_for("/help")
        terminal.send(ENTER)
        terminal.wait_for("/attach FILE")
        terminal.wait_for(PROMPT)
        terminal.send(f"{UP}{UP}{ENTER}")
        terminal.wait_for("there was no answer yet")
        terminal.send(f"/quit{ENTER}")
        assert terminal.ended() == 0
    assert not (tmp_path / "chat_history").exists()


def test_ctrl_c_stops_the_answer_and_not_the_program(tmp_path: Path) -> None:
    with opened(tmp_path) as terminal:
        terminal.send(f"slow{ENTER}")
        terminal.wait_for("word word")
        terminal.send(CTRL_C)
        terminal.wait_for("(stopped)")
        terminal.wait_for(PROMPT)
        terminal.send(f"/history{ENTER}")
        terminal.wait_for("■ word word")
        terminal.wait_for(PROMPT)
        terminal.send(f"half a line{CTRL_C}")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_C)
        terminal.wait_for("(Ctrl+C once more or Ctrl+D leaves)")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_C)
        assert terminal.ended() == 130


def test_a_stop_that_takes_long_is_told_and_need_not_be_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path) as terminal:
        terminal.send(f"deaf{ENTER}")
        terminal.wait_for("word word")
        terminal.send(CTRL_C)
        terminal.wait_for("stopping on every host")
        terminal.send(CTRL_C)
        terminal.wait_for("may go on with it")
        terminal.wait_for(PROMPT)
        terminal.send(f"next{ENTER}")
        terminal.wait_for("<next>")


def test_what_is_typed_during_an_answer_is_not_lost(tmp_path: Path) -> None:
    with opened(tmp_path) as terminal:
        terminal.send(f"slow{ENTER}")
        terminal.wait_for("word word")
        terminal.signal(signal.SIGINT)
        terminal.send(f"and then{ENTER}")
        terminal.wait_for("<and then>")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, name: str, where: str) -> None:
    number = signal.Signals[name]
    with opened(tmp_path) as terminal:
        if where == "answer":
            terminal.send(f"slow{ENTER}")
            terminal.wait_for("word word")
        terminal.signal(number)
        assert terminal.ended() == 128 + number


def test_a_stop_that_never_ends_does_not_outlive_a_signal(tmp_path: Path) -> None:
    with opened(tmp_path) as terminal:
        terminal.send(f"deaf{ENTER}")
        terminal.wait_for("word word")
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() == 143


def test_a_terminal_that_can_do_nothing_gets_plain_lines(tmp_path: Path) -> None:
    with opened(tmp_path, term="dumb") as terminal:
        terminal.send("one\n")
        terminal.wait_for("<one>")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_C)
        terminal.wait_for("Ctrl+C once more")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.raw
