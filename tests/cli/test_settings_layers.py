"""Flags win over the environment, that over the file, and each value is checked as a flag is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest

from diffuse_core.cli import cli
from diffuse_core.cli.common import attached, common, finite
from diffuse_core.cli.layers import LayeredGroup, setting_of, switch_both_ways
from diffuse_core.errors import UsageError
from diffuse_core.settings import NetworkOptions

if TYPE_CHECKING:
    from pathlib import Path

Given = dict[str, Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, still empty."""
    path = tmp_path / "config.toml"
    path.touch(0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(path))
    for name in ("MDNS", "NETWORK", "NETWORK_KEY", "STATE_DIR"):
        monkeypatch.delenv(f"DIFFUSE_{name}", raising=False)
    return path


def got(*arguments: str) -> Given:
    """What a command of a small tree is given."""
    found: list[Given] = []

    @click.command()
    @click.option("--memory")
    @click.option("--threads", type=click.IntRange(1, 8))
    @click.option("--grace", type=float, default=20.0, callback=finite)
    @click.option("--dtype", type=click.Choice(["auto", "int4"]), default="auto")
    @click.option("--stop", multiple=True)
    @click.option("--no-guessing", is_flag=True)
    @click.option("--timings", is_flag=True)
    @click.option("--raw", is_flag=True)
    @click.option("--system")
    @click.option("--prompt")
    @click.option("--json", "as_json", is_flag=True)
    @common
    def host(**given: Any) -> None:
        found.append(given)

    @click.command()
    @click.option("--memory", required=True)
    @click.option("--public-addr")
    @common
    def plan(**given: Any) -> None:
        found.append(given)

    @click.command()
    @click.option("--hosts", type=int)
    @common
    def demo(**given: Any) -> None:
        found.append(given)

    @click.group()
    def identity() -> None: ...

    @identity.command()
    @attached
    def show(**given: Any) -> None:
        found.append(given)

    root = LayeredGroup(commands={"host": host, "plan": plan, "identity": identity, "demo": demo})
    switch_both_ways(root)
    root.main(list(arguments), "diffuse", standalone_mode=False)
    return found[0]


def test_each_layer_wins_over_those_below(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert got("host")["memory"] is None
    file.write_text('memory = "1GiB"\n')
    assert got("host")["memory"] == "1GiB"
    file.write_text('memory = "1GiB"\n[host]\nmemory = "2GiB"\n')
    assert got("host")["memory"] == "2GiB"
    monkeypatch.setenv("DIFFUSE_MEMORY", "3GiB")
    assert got("host")["memory"] == "3GiB"
    monkeypatch.setenv("DIFFUSE_HOST_MEMORY", "4GiB")
    assert got("host")["memory"] == "4GiB"
    assert got("host", "--memory", "5GiB")["memory"] == "5GiB"
    monkeypatch.setenv("DIFFUSE_HOST_MEMORY", "")
    assert got("host")["memory"] == "3GiB", "an empty variable is none"


def test_every_kind_of_value_comes_from_the_file(file: Path) -> None:
    file.write_text(
        'log_level = "debug"\nbootstrap = ["a:1", "b:2"]\nmdns = false\n[host]\nthreads = 4\n'
        'grace = 3\ndtype = "int4"\nstop = ["a, b", "c"]\nno-guessing = true\ntimings = true\n'
    )
    given = got("host")
    assert (given["log_level"], given["bootstrap"]) == ("debug", ("a:1", "b:2"))
    assert (given["threads"], given["grace"], given["dtype"]) == (4, 3.0, "int4")
    assert (given["stop"], given["no_guessing"]) == (("a, b", "c"), True)
    assert (given["timings"], given["network"].mdns) == (True, False)


def test_lists_in_the_environment_are_split_at_commas_but_texts_are_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_BOOTSTRAP", "a:1, b:2,")
    monkeypatch.setenv("DIFFUSE_STOP", "Yes, ")
    given = got("host")
    assert given["bootstrap"] == ("a:1", "b:2")
    assert given["stop"] == ("Yes, ",)
    assert got("host", "--bootstrap", "c:3")["bootstrap"] == ("c:3",), "flags do not add to it"


def test_a_flag_switches_off_what_the_file_switches_on(file: Path) -> None:
    file.write_text("[host]\ntimings = true\nno-guessing = true\nno-mdns = true\n")
    assert got("host", "--no-timings", "--guessing", "--mdns")["timings"] is False
    assert got("host", "--guessing")["no_guessing"] is False
    assert got("host", "--mdns")["network"].mdns is True
    file.write_text("[host]\nguessing = false\n")
    assert got("host")["no_guessing"] is True


@pytest.mark.parametrize(
    ("text", "on"), [("0", False), ("off", False), ("1", True), ("YES", True)]
)
def test_switches_in_the_environment(
    text: str, on: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_TIMINGS", text)
    assert got("host")["timings"] is on
    monkeypatch.setenv("DIFFUSE_TIMINGS", "perhaps")
    with pytest.raises(UsageError, match="DIFFUSE_TIMINGS: 'perhaps' is neither 1 nor 0"):
        got("host")


def test_the_nearer_of_two_that_exclude_each_other_counts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("of the file\n")
    file.write_text(f'network-key-file = "{key}"\n')
    assert got("host")["network"] == NetworkOptions(secret="of the file")
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", "of the environment")
    assert got("host")["network"] == NetworkOptions(secret="of the environment")
    given = got("host", "--network-key-file", str(key))
    assert given["network"] == NetworkOptions(secret="of the file")
    assert got("host", "--network-key", "typed")["network"] == NetworkOptions(secret="typed")
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY_FILE", str(key))
    with pytest.raises(UsageError, match=r"not both.*DIFFUSE_NETWORK_KEY.*DIFFUSE_NETWORK_KEY_"):
        got("host")


def test_a_switch_that_is_off_excludes_nothing(file: Path) -> None:
    file.write_text('[host]\nsystem = "Be brief."\n')
    assert got("host")["system"] == "Be brief."
    assert got("host", "--raw")["system"] is None
    assert got("host", "--no-raw")["system"] == "Be brief."
    file.write_text('raw = false\n[host]\nsystem = "Be brief."\n')
    assert got("host")["system"] == "Be brief."


def test_a_plan_is_made_as_a_host_would_be(file: Path) -> None:
    file.write_text('[host]\nmemory = "2GiB"\n')
    assert got("plan")["memory"] == "2GiB", "and what is required need not be typed"
    file.write_text('[host]\nmemory = "2GiB"\n[plan]\nmemory = "1GiB"\n')
    assert got("plan")["memory"] == "1GiB"


def test_commands_below_others_have_tables_below_theirs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[identity]\nnetwork = "a"\n')
    assert got("identity", "show")["network"].name == "a"
    file.write_text('[identity]\nnetwork = "a"\n[identity.show]\nnetwork = "b"\n')
    assert got("identity", "show")["network"].name == "b"
    monkeypatch.setenv("DIFFUSE_IDENTITY_SHOW_NETWORK", "c")
    assert got("identity", "show")["network"].name == "c"


def test_a_demo_is_a_network_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(f'bootstrap = "a:1"\nallow = "{"ab" * 32}"\nstate-dir = "/x"\nnetwork = "n"\n')
    given = got("demo")
    assert (given["bootstrap"], given["network"].allowed, given["state_dir"]) == ((), None, None)
    assert given["network"].name == "n"
    monkeypatch.setenv("DIFFUSE_DEMO_STATE_DIR", "/y")
    assert got("demo")["state_dir"] == "/y"


def test_what_our_processes_give_is_changed_by_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('network = "theirs"\nbootstrap = "b:2"\nmemory = "1GiB"\n')
    monkeypatch.setenv("DIFFUSE_HOST_NETWORK_KEY", "theirs")
    ours = got("host", "--network", "ours", "--network-key", "k", "--no-mdns")["network"]
    for name, value in ours.environment().items():
        monkeypatch.setenv(name, value)
    given = got("host", *ours.arguments())
    assert given["network"] == ours
    assert (given["bootstrap"], given["memory"]) == ((), "1GiB"), "the rest is the user's"
    monkeypatch.setenv("DIFFUSE_ONLY_FLAGS", "*")
    assert got("host", *ours.arguments())["memory"] is None


@pytest.mark.parametrize("name", ["prompt", "json", "now", "ask", "exit-with-parent", "version"])
def test_what_is_for_one_call_comes_from_flags_only(name: str) -> None:
    commands = [cli, *cli.commands.values()]
    options = [
        option for command in commands for option in command.params if f"--{name}" in option.opts
    ]
    assert options
    assert [setting_of(option) for option in options] == [None] * len(options)


def test_help_needs_no_file_and_tells_the_program_s_defaults(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("nonsense")
    cli.main(["verify", "--help"], "diffuse", standalone_mode=False)
    assert "[default: 24; 1<=x<=4096]" in " ".join(capsys.readouterr().out.split())
