"""`diffuse config`: what counts, where it comes from, and a first file."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.cli import cli, run
from diffuse_core.cli.config_example import EXAMPLE
from diffuse_core.cli.layers import known_settings
from diffuse_core.config_file import config_path, read_config
from diffuse_core.configuration import problems, variable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of settings is to be."""
    path = tmp_path / "new" / "config.toml"
    monkeypatch.setenv("DIFFUSE_CONFIG", str(path))
    monkeypatch.delenv("DIFFUSE_MDNS", raising=False)
    return path


def written(file: Path, text: str) -> Path:
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(text)
    return file


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["config", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_says_where_each_setting_comes_from(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, 'threads = 2\nbootstrap = ["a:1", "b:2"]\n[host]\nmemory = "1GiB"\n')
    monkeypatch.setenv("DIFFUSE_HOST_DTYPE", "int4")
    rows = {row["option"]: row for row in told(capsys, "show", "host")["settings"]}
    assert [rows["memory"][key] for key in ("value", "source", "origin", "variable")] == [
        "1GiB",
        "file",
        f"host.memory in {file}",
        "DIFFUSE_HOST_MEMORY",
    ]
    assert [rows["dtype"][key] for key in ("value", "source", "origin")] == [
        "int4",
        "environment",
        "DIFFUSE_HOST_DTYPE",
    ]
    assert rows["threads"]["value"] == "2"
    assert rows["bootstrap"]["value"] == ["a:1", "b:2"]
    assert (rows["target-replicas"]["value"], rows["target-replicas"]["source"]) == (2, "default")
    assert "json" not in rows
    assert "exit-with-parent" not in rows
    assert run(["config", "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"file: {file}"
    assert any(line.split()[:2] == ["memory", "1GiB"] for line in lines)


def test_a_secret_is_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, "network-key = 'hush'\n")
    monkeypatch.setenv("DIFFUSE_CHAT_NETWORK_KEY", "hush")
    for arguments in (["show"], ["show", "chat"], ["show", "--json"], ["check"]):
        assert run(["config", *arguments]) == 0
        shown = capsys.readouterr()
        assert "hush" not in shown.out + shown.err
    assert run(["config", "show", "chat"]) == 0
    assert "********" in capsys.readouterr().out


def test_the_app_has_a_table_too_and_models_a_place(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, 'theme = "dark"\n[app]\nmodel = "demo"\n')
    rows = {row["option"]: row for row in told(capsys, "show", "app")["settings"]}
    assert (rows["theme"]["value"], rows["model"]["value"]) == ("dark", "demo")
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", "/c")
    [row] = told(capsys, "show", "all")["settings"]
    assert [row[key] for key in ("option", "value", "origin")] == [
        "cache-dir",
        "/c",
        "DIFFUSE_CACHE_DIR",
    ]


def test_an_unknown_command_is_named_with_the_nearest(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, "")
    assert run(["config", "show", "hots"]) == 2
    assert "did you mean 'host'?" in capsys.readouterr().err


def test_check_finds_what_flags_would_refuse(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, '[host]\nmemory = "lots"\n[query]\ntop-p = 7\n')
    monkeypatch.setenv("DIFFUSE_TIMINGS", "perhaps")
    monkeypatch.setenv("DIFFUSE_APP_NO_HISTORY", "perhaps")
    monkeypatch.setenv("DIFFUSE_BOOTSTRAP", "here and there")
    monkeypatch.setenv("DIFFUSE_HOST_MEMROY", "1")
    assert run(["config", "check"]) == 2
    out = capsys.readouterr().out
    assert f"host.memory in {file}: 'lots' is no size" in out
    assert f"query.top-p in {file}: 7.0 is not in the range" in out
    assert "DIFFUSE_TIMINGS: 'perhaps' is neither 1 nor 0" in out
    assert "DIFFUSE_APP_NO_HISTORY: 'perhaps' is neither 1 nor 0" in out
    assert "DIFFUSE_BOOTSTRAP: 'here and there' is no address" in out
    assert "DIFFUSE_HOST_MEMROY is no setting; did you mean 'DIFFUSE_HOST_MEMORY'?" in out
    for name in ("TIMINGS", "APP_NO_HISTORY", "BOOTSTRAP"):
        monkeypatch.delenv(f"DIFFUSE_{name}")
    file.write_text("threads = 2\n")
    assert run(["config", "check"]) == 0


def test_init_writes_a_file_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "init"]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == EXAMPLE
    assert max(map(len, EXAMPLE.splitlines())) <= 80
    file.write_text("threads = 2\n")
    assert run(["config", "init"]) == 2
    assert "is there already, and is not overwritten" in capsys.readouterr().err
    assert file.read_text() == "threads = 2\n"


def test_every_line_of_the_example_can_be_used(file: Path) -> None:
    lines = EXAMPLE.splitlines()
    setting = [line[2:] for line in lines if " = " in line or line.startswith("# [")]
    assert len(setting) > 20
    written(file, "\n".join(setting))
    assert list(problems(read_config(), known_settings(cli))) == []
    assert run(["config", "check"]) == 0


def test_path_tells_the_place_even_where_the_file_is_of_no_use(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, "nonsense")
    assert run(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    monkeypatch.delenv("DIFFUSE_CONFIG")
    assert config_path().name == "config.toml"
    assert config_path().parent.name == "diffuse"


def test_what_another_setting_outdoes_is_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, 'network-key-file = "/k"\n[query]\nraw = true\n')
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", "hush")
    monkeypatch.setenv("DIFFUSE_SYSTEM", "s")
    for name in ("query", "app"):
        rows = {row["option"]: row for row in told(capsys, "show", name)["settings"]}
        assert rows["network-key"]["value"] == "********"
        assert (rows["network-key-file"]["value"], rows["network-key-file"]["source"]) == (
            None,
            "default",
        )
    rows = {row["option"]: row for row in told(capsys, "show", "query")["settings"]}
    assert (rows["raw"]["value"], rows["system"]["value"]) == (False, "s")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[app]\ntheme = "nosuch"', "app.theme in {file}: 'nosuch' is no value of --theme"),
        ('[app]\nbootstrap = "a:b:c"', "app.bootstrap in {file}: 'a:b:c' is no address"),
        ('[app]\nstate-dir = "~nosuch"', "app.state-dir in {file}: nobody here has the home"),
        ('cache-dir = "~nosuch"', "cache-dir in {file}: nobody here has the home"),
    ],
)
def test_check_looks_at_what_no_command_has(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    written(file, text + "\n")
    assert run(["config", "check"]) == 2
    assert words.format(file=file) in capsys.readouterr().out


def test_of_commands_that_have_others_below_those_are_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIFFUSE_CONFIG", "/dev/null")
    assert not file.exists()
    shown = {row["command"] for row in told(capsys, "show", "identity")["settings"]}
    assert shown == {"identity show", "identity export", "identity import"}
    shown = {row["command"] for row in told(capsys, "show", "identity", "show")["settings"]}
    assert shown == {"identity show"}
    assert run(["config", "show", "completions"]) == 0
    assert "`diffuse completions` has no settings" in capsys.readouterr().out


def test_no_variable_means_two_things() -> None:
    meant: dict[str, set[str]] = {}
    for place, settings in known_settings(cli).items():
        for name, setting in settings.items():
            if setting is not None:
                meant.setdefault(variable(place, name), set()).add(name)
    # Where `doctor` looks for the port of `serve`, and that port: the same, however it is read.
    assert {name: found for name, found in meant.items() if len(found) > 1} == {
        "DIFFUSE_SERVE_PORT": {"port", "serve-port"}
    }
    assert variable(("drain",), "timeout") == "DIFFUSE_TIMEOUT"
    assert variable(("host",), "drain-timeout") == "DIFFUSE_HOST_DRAIN_TIMEOUT"
