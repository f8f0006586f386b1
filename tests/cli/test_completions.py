"""The scripts for shells, and bash with its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from shell_terminal import ALL, BASH_COMPLETION, Shell, shell

from diffuse_core.cli import cli, root, run, shell_scripts
from diffuse_core.cli.completions import PROGRAM, VARIABLE, answer_shell
from diffuse_core.cli.layers import commands_below
from diffuse_core.cli.shell_scripts import LINE, TOKENS, WORD

if TYPE_CHECKING:
    from collections.abc import Iterator


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


HOSTILE = (
    "Cq--${x:-`touch PWN`}",
    "Cq--$(touch PWN)",
    "Cq--a;touch PWN",
    "Cq--a b",
    "Cq--'",
    "Cq--~",
)
"""Names of directories that are no models."""


def asked(shell: str, capsys: pytest.CaptureFixture[str], **told: str) -> list[str]:
    """What a shell is answered that asks as our scripts do."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        assert answer_shell(cli, {VARIABLE: f"{shell}_complete"}) == 0
    return capsys.readouterr().out.splitlines()


def completed(words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a script of click's own, which an older version has printed, is answered."""
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
    assert completed("diffuse host --log-file ./m", capsys) == ["file,./m"]
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
    assert completed("diffuse config show a", capsys) == ["plain,all", "plain,app"]
    assert completed("diffuse config show identity a", capsys) == []


def test_nobody_asks_for_completions_usually() -> None:
    assert answer_shell(cli, {}) is None


def test_an_unknown_question_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for question in ("csh_complete", "bash_nothing", "bash"):
        assert answer_shell(cli, {VARIABLE: question}) == 1
    assert answer_shell(cli, {VARIABLE: "bash_source"}) == 0
    assert f"-F _{PROGRAM}_completion {PROGRAM}" in capsys.readouterr().out


def test_models_that_are_here_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path))
    assert completed("diffuse query --model ", capsys) == ["plain,demo", "file,"]
    (tmp_path / "hub" / "Org--Small-Model").mkdir(parents=True)
    assert completed("diffuse host --model ", capsys) == [
        *("plain,demo", "plain,auto", "plain,Org/Small-Model", "file,")
    ]
    assert completed("diffuse verify Or", capsys) == ["plain,Org/Small-Model", "file,Or"]
    assert completed("diffuse query --private-model de", capsys) == ["plain,demo", "file,de"]
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", "")
    monkeypatch.setenv("DIFFUSE_CONFIG", str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text("nonsense")
    assert completed("diffuse query --model d", capsys) == ["plain,demo", "file,d"]


@pytest.mark.parametrize("name", HOSTILE)
def test_only_what_names_a_model_is_offered(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bash puts it into the line as it is, and would run what is in it."""
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path))
    (tmp_path / "hub" / name).mkdir(parents=True)
    for which in ("bash", "zsh", "fish"):
        found = asked(which, capsys, **{LINE: "diffuse verify ", TOKENS: "diffuse\nverify"})
        assert [line for line in found if "Cq" in line] == []


def test_what_a_shell_would_run_is_never_offered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "_fetched", lambda: ["Org/Fine", *HOSTILE])
    for which in ("bash", "zsh", "fish"):
        found = asked(which, capsys, **{LINE: "diffuse verify ", TOKENS: "diffuse\nverify"})
        assert any("Org/Fine" in line for line in found)
        assert [line for line in found if "Cq" in line] == []


def test_all_choices_and_commands_can_be_offered() -> None:
    for path, command in commands_below(cli):
        choices = [
            str(choice)
            for param in command.params
            if isinstance(param.type, click.Choice)
            for choice in param.type.choices
        ]
        names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
        for word in (*path, *choices, *names):
            assert shell_scripts._SAFE.fullmatch(word), word


def test_the_command_of_a_service_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed("diffuse service print se", capsys) == ["plain,sentinel", "plain,serve"]
    assert completed("diffuse service print --us", capsys) == ["plain,--user"]
    assert completed("diffuse service install --user host --max-l", capsys) == [
        "plain,--max-layers"
    ]
    assert completed("diffuse service install node --device x", capsys) == []
    inner = ["plain,sentinel", "plain,serve"]
    assert completed("diffuse service print --name host --run-as node se", capsys) == inner
    assert completed("diffuse service print --name=host --run-as node --us", capsys) == [
        "plain,--user"
    ]
    assert completed("diffuse service print --name ho", capsys) == []
    assert completed("diffuse service print --name node host --max-l", capsys) == [
        "plain,--max-layers"
    ]
    assert completed("diffuse service print query --max-t", capsys) == []


def test_what_each_shell_is_told_fits_what_it_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    value = "diffuse host --device=cu"
    # Bash takes what follows the sign for the word, zsh is told to, and fish takes the whole.
    assert asked("bash", capsys, **{LINE: value, WORD: "cu"}) == ["plain,cuda"]
    assert asked("zsh", capsys, **{LINE: value}) == ["plain", "cuda", "_"]
    given = {TOKENS: "A=b\ndiffuse\nhost", WORD: "--device=cu"}
    assert asked("fish", capsys, **given) == ["plain,--device=cuda"]
    line = "diffuse query --system 'a: \"b c' --stop \"$X\" --prompt it\\'s --max-t"
    assert asked("bash", capsys, **{LINE: line, WORD: "--max-t"}) == ["plain,--max-tokens"]
    assert asked("zsh", capsys, **{LINE: "diffuse qua"})[1] == "quarantine"
    assert asked("fish", capsys, **{TOKENS: "diffuse", WORD: "qua"})[0].startswith(
        "plain,quarantine\t"
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_shell_is_answered_without_what_computes() -> None:
    code = (
        "import os, sys\n"
        "from diffuse_core.cli import run\n"
        "assert run() == 0\n"
        "heavy = {'torch', 'transformers', 'numpy', 'websockets', 'starlette', 'textual'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    given = {VARIABLE: "zsh_complete", LINE: "diffuse host --model "}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plain\ndemo\n")


SHELLS = ("bash", "bash with bash-completion", "zsh", "fish")
LINES = (
    ("quar", "quarantine "),
    ("host --max-l", "host --max-layers "),
    ("host --bootstrap 127.0.0.1:9440 --max-l", "host --bootstrap 127.0.0.1:9440 --max-layers "),
    ("host --device cu", "host --device cuda "),
    ("host --device=cu", "host --device=cuda "),
    ("host --model de", "host --model demo "),
    ("host --model Org/Sm", "host --model Org/Small-Model "),
    ("host --model=./wei", "host --model=./weights.gguf "),
    ("host --model wei", "host --model weights.gguf "),
    ("host --model ~/mod", "host --model ~/model.gguf "),
    ("host --model=~/mod", "host --model=~/model.gguf "),
    ("host --state-dir ~/plac", "host --state-dir ~/place/"),
    ("host --model ./my\\ m", "host --model ./my\\ model.gguf "),
    ('verify "./my m', 'verify "./my model.gguf" '),
    ("host --state-dir sta", "host --state-dir state/"),
    ("host --state-dir=sta", "host --state-dir=state/"),
    ("query --system 'a: \"b\"' --max-t", "query --system 'a: \"b\"' --max-tokens "),
    ("query --prompt it\\'s --max-t", "query --prompt it\\'s --max-tokens "),
    ("help hosti", "help hosting "),
    ("help config sh", "help config show "),
    ("config show ap", "config show app "),
    ("service print --user ho", "service print --user host "),
    ("service print host --max-l", "service print host --max-layers "),
    ("service print --name host sen", "service print --name host sentinel "),
    ("nonsense --max-l", "nonsense --max-l"),
)


@pytest.fixture(params=SHELLS)
def typing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """A shell with our completions, between some files."""
    name, _, more = request.param.partition(" ")
    if shutil.which(name) is None or (more and not BASH_COMPLETION.exists()):
        pytest.skip(f"no {request.param} here")
    for file in ("weights.gguf", "my model.gguf", "a list"):
        (tmp_path / file).touch()
    (tmp_path / "state").mkdir()
    home = tmp_path / f"home-{name}"
    for model in ("Org--Small-Model", HOSTILE[0]):
        (home / ".cache/diffuse/hub" / model).mkdir(parents=True)
    (home / "model.gguf").touch()
    (home / "place").mkdir()
    with shell(name, tmp_path, plugin=BASH_COMPLETION if more else None) as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_user_types_and_the_shell_completes(typing: Shell) -> None:
    """In a real shell, on a terminal, with the lines that the help gives."""
    for typed, whole in LINES:
        assert typing.line(f"diffuse {typed}") == f"diffuse {whole}"
    place = Path("~/bin/diffuse")
    assert typing.line(f"{place} quar") == f"{place} quarantine "
    assert typing.line("A=b diffuse quar") == "A=b diffuse quarantine "


def test_no_line_is_too_much_for_what_a_shell_asks(capsys: pytest.CaptureFixture[str]) -> None:
    """What goes wrong is not seen in a shell: the scripts leave out what is on stderr."""
    for typed, _ in LINES:
        line = f"diffuse {typed}"
        tokens, _, word = line.rpartition(" ")
        for which in ("bash", "zsh", "fish"):
            with pytest.MonkeyPatch.context() as patch:
                given = {TOKENS: tokens.replace(" ", "\n"), WORD: word}
                for name, value in (given if which == "fish" else {LINE: line}).items():
                    patch.setenv(name, value)
                assert answer_shell(cli, {VARIABLE: f"{which}_complete"}) == 0
            assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_is_offered_runs_nothing(typing: Shell, tmp_path: Path) -> None:
    """Bash quotes names of files, but no half of one that has a line break in it."""
    if typing.name != "bash":
        pytest.skip("the others quote all that they put in")
    for name in ("odd`touch PWN`\nx", "odd\n`touch PWN`", "odd $(touch PWN)"):
        (tmp_path / name).touch()
    line = typing.line("diffuse query --model ", ALL)
    assert "PWN" not in line.replace("odd\\ \\$\\(touch\\ PWN\\)", "")
    assert "weights.gguf" in line
    assert typing.line("diffuse query --model $HOME/mod").endswith("/model.gguf ")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_all_that_may_stand_there_is_offered(typing: Shell) -> None:
    if typing.name == "fish":
        pytest.skip("fish shows a list, and puts in one of it")
    offered = typing.line("diffuse query --model ", ALL).split()[3:]
    assert {"demo", "Org/Small-Model", "weights.gguf"} <= set(offered)
    assert "auto" not in offered
    assert set(typing.line("diffuse host --dtype int", ALL).split()[3:]) == {"int8", "int4"}
