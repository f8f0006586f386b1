"""Places that settings name, and surroundings in which commands must be of use all the same."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from diffuse_core.cli import run
from diffuse_core.own_paths import full_path, user_directory

SHOW = ["identity", "show"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, still empty."""
    path = tmp_path / "config.toml"
    path.touch(0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(path))
    monkeypatch.setenv("DIFFUSE_STATE_DIR", str(tmp_path / "state"))
    return path


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the system does not know, as some containers have one."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "DIFFUSE_CONFIG", "DIFFUSE_STATE_DIR", "DIFFUSE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in [one for one in os.environ if one.startswith("XDG_")]:
        monkeypatch.delenv(name)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_home_that_is_not_there_is_told_with_the_setting_that_names_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "nobody here has the home of '~nosuch/x'; write the whole path"
    assert told in refused(capsys, *SHOW, "--state-dir", "~nosuch/x")
    monkeypatch.setenv("DIFFUSE_STATE_DIR", "~nosuch/x")
    assert f"{told} (--state-dir comes from DIFFUSE_STATE_DIR" in refused(capsys, *SHOW)
    monkeypatch.delenv("DIFFUSE_STATE_DIR")
    file.write_text('state-dir = "~nosuch/x"\n')
    assert f"{told} (--state-dir comes from state-dir in {file}" in refused(capsys, *SHOW)
    file.write_text("")
    key = refused(capsys, "models", "--network-key-file", "~nosuch/x")
    assert f"--network-key-file: {told}" in key
    assert told in refused(capsys, "sentinel", "--log-file", "~nosuch/x")
    assert told in refused(capsys, "serve", "--print-key", "--api-key-file", "~nosuch/x")
    monkeypatch.setenv("DIFFUSE_CONFIG", "~nosuch/x")
    for words in (("config", "path"), ("config", "show"), ("config", "init"), tuple(SHOW)):
        assert f"DIFFUSE_CONFIG: {told}" in refused(capsys, *words)


def test_paths_of_settings_may_begin_with_a_tilde(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text("k" * 40)
    file.write_text('[serve]\napi-key-file = "~/key"\n[sentinel]\nlog-file = "~/no/log"\n')
    assert run(["serve", "--print-key"]) == 0
    assert capsys.readouterr().out == "k" * 40 + "\n"
    assert f"cannot write '{tmp_path}/no/log'" in refused(capsys, "sentinel")


@pytest.mark.usefixtures("no_home")
def test_who_has_no_home_can_say_where_things_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "this user has no home directory; set HOME, or"
    assert f"{told} give --state-dir" in refused(capsys, *SHOW)
    for words in (("config", "path"), ("config", "init")):
        assert f"{told} DIFFUSE_CONFIG to the name of a file" in refused(capsys, *words)
    assert run([*SHOW, "--state-dir", str(tmp_path)]) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(SHOW) == 0
    assert str(tmp_path / "diffuse") in capsys.readouterr().out


def test_a_home_that_the_platform_does_not_know_is_no_name_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/x"))
    with pytest.raises(Exception, match="no home directory; set HOME, or go elsewhere"):
        user_directory("cache", "go elsewhere")


def test_a_path_from_a_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert full_path("/a") == Path("/a")
    with pytest.raises(Exception, match="begins in a directory that is gone"):
        full_path("a")


def test_what_kubernetes_sets_is_no_setting(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for service in ("DIFFUSE", "DIFFUSE_SERVE", "DIFFUSE_HOST"):
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.1:80")
        monkeypatch.setenv(f"{service}_PORT_80_TCP", "tcp://10.0.0.1:80")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_PROTO", "tcp")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_PORT", "80")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_ADDR", "10.0.0.1")
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "80")
        monkeypatch.setenv(f"{service}_SERVICE_PORT_HTTP", "80")
    assert run(["serve", "--print-key"]) == 0
    capsys.readouterr()
    assert run(["config", "check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["problems"], told["unknown_variables"]) == ([], {})
    monkeypatch.setenv("DIFFUSE_PORT", "10.0.0.1:80")
    assert "--port comes from DIFFUSE_PORT" in refused(capsys, "serve", "--print-key")
    assert file.read_text() == ""


def test_a_file_that_cannot_be_reached_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DIFFUSE_CONFIG", str(tmp_path / "file" / "config.toml"))
    told = refused(capsys, *SHOW)
    assert "not a directory; mend that, or name another file in DIFFUSE_CONFIG (/dev/null" in told
