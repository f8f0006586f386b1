"""Help is the documentation: every command has an example, fits a terminal, and loads nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from diffuse_core.cli import cli, run
from diffuse_core.cli.help_topics import topics
from diffuse_core.cli.layers import commands_below
from diffuse_core.cli.root import OTHERS, SECTIONS

TREE = {" ".join(place): command for place, command in commands_below(cli)}
DATA = (
    "status, models, plan, query, verify, bench, doctor, stop, drain, identity show, "
    "identity export, identity import, quarantine list, quarantine clear, config show, "
    "config path, config check"
)
"""Commands that tell something."""
TOPICS = (
    "app hosting models networks nat sampling private audits timings verify stopping identity "
    "settings scripts"
)
SHARED = {
    *("--bootstrap", "--state-dir", "--network", "--network-key-file", "--allow", "--log-level"),
    *("--memory", "--max-layers", "--listen", "--threads"),
}
"""Options of many commands whose default the command finds by itself."""
HEAVY = "torch, transformers, starlette, uvicorn, prometheus_client, prompt_toolkit, textual"
ALL_HELP = f"""
import sys
from diffuse_core.cli import cli, run
from diffuse_core.cli.layers import commands_below
for place, _ in commands_below(cli):
    assert run([*place, "--help"]) == 0
loaded = set({HEAVY.split(", ")}) & set(sys.modules)
assert not loaded, loaded
"""


def text_of(name: str) -> str:
    command = TREE[name]
    place = name.split()
    context = click.Context(cli, info_name="diffuse", **cli.context_settings)
    for depth in range(len(place)):
        below = TREE[" ".join(place[: depth + 1])]
        context = click.Context(below, context, place[depth], terminal_width=80)
    return command.get_help(context)


@pytest.mark.parametrize("name", TREE)
def test_every_command_has_an_example_and_fits(name: str) -> None:
    text = text_of(name)
    lines = text.splitlines()
    examples = [line for line in lines if re.search(rf"^ +(\S.*)?diffuse {name}", line)]
    assert examples, f"`diffuse {name} --help` has no example"
    wide = [line for line in lines if len(line) > 80]
    assert not wide, f"`diffuse {name} --help` has lines that no terminal of 80 columns shows"


@pytest.mark.parametrize("name", TREE)
def test_every_option_says_what_it_does(name: str) -> None:
    silent = [
        option.opts[0]
        for option in TREE[name].params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert not silent


@pytest.mark.parametrize("name", TREE)
def test_every_default_is_told(name: str) -> None:
    """But for switches, which are off, and what is not given at all."""
    context = click.Context(TREE[name])
    untold = []
    for option in TREE[name].params:
        if not isinstance(option, click.Option) or option.is_flag or option.hidden:
            continue
        record = option.get_help_record(context)
        plain = isinstance(option.get_default(context), str | int | float)
        known = plain or option.opts[0] in SHARED
        if record is not None and known and "efault" not in record[1]:
            untold.append(option.opts[0])
    assert not untold


def test_what_tells_something_tells_it_to_programs_as_well() -> None:
    known = [name for name in DATA.split(", ") if name in TREE]
    assert len(known) > 12
    without = [
        name for name in known if not any("--json" in one.opts for one in TREE[name].params)
    ]
    assert not without


@pytest.mark.slow
def test_no_help_loads_what_is_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_commands_are_listed_by_what_they_are_for() -> None:
    text = text_of("")
    assert [text.index(f"\n{title}:") for title in SECTIONS] == sorted(
        text.index(f"\n{title}:") for title in SECTIONS
    )
    assert f"\n{OTHERS}:" not in text, "give the new command a section"
    for code in (0, 2, 3, 4, 5, 6, 7, 8, 74, 130, 141):
        assert re.search(rf"(^|  ) *{code}  \w", text, re.MULTILINE), code


@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["hots"], "host"), (["host", "--memry", "1"], "--memory"), (["help", "hostin"], "hosting")],
)
def test_typing_errors_are_told_with_the_nearest(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert nearest in capsys.readouterr().err


def test_guides_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    listed = capsys.readouterr().out
    guides = topics()
    assert set(TOPICS.split()) <= set(guides)
    for name, guide in guides.items():
        assert f"\n  {name} " in listed
        assert run(["help", name]) == 0
        shown = capsys.readouterr().out
        assert shown == guide.read_text("utf-8")
        assert re.match(r"# \w.*\n\n", shown), name
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= 80, name


def test_help_of_a_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "drain"]) == 0
    assert "Usage: diffuse drain [OPTIONS]" in capsys.readouterr().out


def test_help_of_a_command_below_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "config", "show"]) == 0
    assert "Usage: diffuse config show [OPTIONS]" in capsys.readouterr().out
    for words in (["config", "shwo"], ["config", "show", "x"], ["drain", "x"]):
        assert run(["help", *words]) == 2
    assert run(["help", "dran"]) == 2
    assert "did you mean 'drain'?" in capsys.readouterr().err


def test_options_and_commands_that_guides_name_are_there() -> None:
    """What a guide tells to type can be typed."""
    options = {name for one in TREE.values() for param in one.params for name in every(param)}
    options |= {"--help", "--version", "--no-ui", "--theme", "--no-history"}
    for name, guide in topics().items():
        text = guide.read_text("utf-8")
        strange = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - options
        assert not strange, f"{name}: {strange}"
        commands = set(re.findall(r"`(?:\w+=\S+ )?diffuse ([a-z]+)", text))
        assert commands <= set(cli.commands), f"{name}: {commands - set(cli.commands)}"


def every(param: click.Parameter) -> list[str]:
    return [*param.opts, *param.secondary_opts]
