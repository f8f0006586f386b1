from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from textual.worker import WorkerFailed

from diffuse_tui.__main__ import main
from diffuse_tui.crash import MAX_KEPT, keep
from diffuse_tui.launch import _parse
from diffuse_tui.quiet import LOG, MAX_BYTES, quiet
from diffuse_tui.terminal_title import name_terminal

if TYPE_CHECKING:
    from pathlib import Path

ASKED = "what was asked"


def failed() -> Exception:
    try:
        try:
            raise KeyError(ASKED)  # noqa: TRY301
        except KeyError as error:
            raise ValueError(f"cannot draw {ASKED}") from error
    except ValueError as error:
        return error


def test_a_report_tells_where_and_not_what_was_said(tmp_path: Path) -> None:
    defect = keep(WorkerFailed(failed()), tmp_path / "state", "20261130-120000")
    assert defect.file is not None
    assert defect.file.stat().st_mode & 0o777 == 0o600
    assert defect.line.startswith("diffuse-tui: a defect in the app ended it (ValueError at test_")
    assert str(defect.file) in defect.line
    text = defect.file.read_text()
    assert "builtins.ValueError" in text
    assert "builtins.KeyError" in text
    assert "in failed" in text
    assert ASKED not in text + defect.line


def test_few_reports_are_kept_and_a_full_disk_does_no_harm(tmp_path: Path) -> None:
    for number in range(MAX_KEPT + 3):
        keep(failed(), tmp_path, f"2026113{number}-120000")
    assert len(list(tmp_path.glob("crash-*.txt"))) == MAX_KEPT
    assert not (tmp_path / "crash-20261130-120000.txt").exists()
    (tmp_path / "file").write_text("")
    for directory in (None, tmp_path / "file"):
        defect = keep(failed(), directory, "now")
        assert defect.file is None
        assert "no details could be kept" in defect.line


def test_exceptions_that_lead_to_each_other_end(tmp_path: Path) -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__context__, other.__context__ = other, one
    assert keep(one, tmp_path, "loop").file is not None


def test_what_others_say_goes_to_the_log_and_the_terminal_is_given_back(tmp_path: Path) -> None:
    state = tmp_path / "state"
    before, streams = os.fstat(2), (sys.stderr, sys.__stderr__)
    with quiet(state):
        os.write(2, b"a C library\n")
        logging.getLogger("library").warning("a logger")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a warning", stacklevel=1)
        assert sys.__stderr__ is not streams[1]
        assert os.fstat(sys.__stderr__.fileno()).st_ino == before.st_ino
    assert os.fstat(2).st_ino == before.st_ino
    assert (sys.stderr, sys.__stderr__) == streams
    said = (state / LOG).read_text()
    assert "a C library" in said
    assert "WARNING library a logger" in said
    assert (state / LOG).stat().st_mode & 0o777 == 0o600
    (state / LOG).write_bytes(b"x" * (MAX_BYTES + 1))
    with quiet(state):
        pass
    assert (state / LOG).stat().st_size == 0


def test_without_a_place_for_the_log_the_app_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with quiet(tmp_path / "file"):
        os.write(2, b"nobody hears")


def test_a_title_cannot_write_more_than_a_title() -> None:
    shown = name_terminal("Diffuse · a\x1b]0;b\x07\n" + "x" * 200)
    assert shown.startswith("\x1b]2;")
    assert shown.endswith("\x07")
    assert not {"\x1b", "\x07", "\n"} & set(shown[1:-1])
    assert len(shown) < 100


def test_the_theme_comes_from_the_command_line_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _parse([]).theme is None
    monkeypatch.setenv("DIFFUSE_THEME", "light")
    assert _parse([]).theme == "light"
    assert _parse(["--theme", "ansi"]).theme == "ansi"
    monkeypatch.setenv("DIFFUSE_THEME", "pink")
    with pytest.raises(SystemExit) as left:
        main(["attach"])
    assert left.value.code == 2
    assert "choose one of dark, light, contrast, ansi" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--help",), ("--state-dir", "x", "--help"), ("demo", "-h"), ("web", "--help")]
)
def test_the_help_of_the_app_is_there_whatever_options_come_before(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: diffuse-tui [demo|attach|chat|web]")
    assert max(map(len, shown.splitlines())) <= 80
