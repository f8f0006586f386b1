"""The scripts for shells, and bash with its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli import cli, run
from diffuse_core.cli.completions import PROGRAM, VARIABLE, answer_shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash here")
    assert run(["completions", shell]) == 0
    script = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in script
    assert PROGRAM in script


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completions", "csh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def completed(words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    environ = {VARIABLE: "bash_complete"}
    given = words.split(" ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMP_WORDS", words)
        patch.setenv("COMP_CWORD", str(len(given) - 1))
        assert answer_shell(cli, environ) == 0
    return capsys.readouterr().out.split()


def test_commands_options_choices_and_paths_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "config.toml"
    broken.write_text("nonsense")
    monkeypatch.setenv("DIFFUSE_CONFIG", str(broken))
    assert "plain,status" in completed("diffuse st", capsys)
    assert completed("diffuse host --max-l", capsys) == ["plain,--max-layers"]
    assert "plain,int4" in completed("diffuse host --dtype i", capsys)
    assert completed("diffuse host --network-key-file ", capsys)[0].startswith("file,")
    assert completed("diffuse host --state-dir x", capsys) == ["dir,x"]
    assert completed("diffuse verify ./m", capsys) == ["file,./m"]
    assert completed("diffuse config sh", capsys) == ["plain,show"]


def test_guides_and_commands_below_others_are_completed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert completed("diffuse help se", capsys) == [
        *("plain,settings", "plain,security"),
        *("plain,sentinel", "plain,serve", "plain,service"),
    ]
    assert completed("diffuse help service pr", capsys) == ["plain,print"]
    assert completed("diffuse help nowhere pr", capsys) == []
    assert completed("diffuse config show ho", capsys) == ["plain,host"]


def test_nobody_asks_for_completions_usually() -> None:
    assert answer_shell(cli, {}) is None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """As a user does it, with the very lines that the help gives."""
    program = tmp_path / "diffuse"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m diffuse_core "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(diffuse completions bash)"
    complete -p diffuse
    try() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _diffuse_completion diffuse
        echo "$*: ${COMPREPLY[*]}"
    }
    try diffuse quar
    try diffuse host --max-l
    try diffuse host --dtype int
    """
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environ["PYTHONPATH"] = os.getcwd()  # noqa: PTH109
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "-F _diffuse_completion diffuse" in done.stdout
    assert "diffuse quar: quarantine\n" in done.stdout
    assert "diffuse host --max-l: --max-layers\n" in done.stdout
    assert "diffuse host --dtype int: int8 int4\n" in done.stdout
