"""What is refused of settings, with where it stands and what to do."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli import run
from diffuse_core.config_file import MAX_FILE, read_config
from diffuse_core.errors import UsageError
from diffuse_core.settings import cache_dir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, still empty."""
    path = tmp_path / "config.toml"
    path.touch(0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(path))
    monkeypatch.setenv("DIFFUSE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("DIFFUSE_MDNS")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("netwrok = 'a'", "netwrok in {file}: there is no such option; did you mean 'network'?"),
        ("[hots]", "hots in {file}: there is no command of that name; did you mean 'host'?"),
        ("[stop]\nmemory = '1'", "stop.memory in {file}: `diffuse stop` has no such option"),
        (
            "[stop]\nnetwrok = '1'",
            "stop.netwrok in {file}: `diffuse stop` has no such option; did",
        ),
        ("threads = '4'", "threads in {file} is to be a whole number"),
        ("threads = 0x" + "f" * 5000, "threads in {file} is a larger number than any"),
        ("threads = 2020-01-01", "threads in {file} is to be a whole number"),
        ("[[host]]\nmemory = 1", "host in {file} is to be a text in quotes"),
        ("threads = true", "threads in {file} is to be a whole number"),
        ("[query]\ntemperature = '1'", "query.temperature in {file} is to be a number"),
        ("[query]\ntimings = 1", "query.timings in {file} is to be true or false"),
        ("network = 5", "network in {file} is to be a text in quotes"),
        ("bootstrap = [1]", "bootstrap in {file} is to be a text in quotes, or a list"),
        ("prompt = 'x'", "prompt in {file}: --prompt is for one call"),
        ("[stop]\nnow = true", "stop.now in {file}: --now is for one call"),
        ("exit-with-parent = true", "exit-with-parent in {file}: --exit-with-parent is for one"),
        ("network = 'a'\nNETWORK = 'b'", "NETWORK in {file}: there is no such option; did"),
        ('model = "a\\u0000b"', "model in {file} has a NUL character"),
        ("'' = 1", "there is no such option"),
        ("a = [", "{file} is no TOML"),
        ("a = " + "[" * 3000, "{file} is no TOML"),
        ("a = " + "1" * 5000, "{file} is no TOML"),
        ("'\\u001b[2J' = 1", "there is no such option"),
        ("# " + "x" * MAX_FILE, "{file} is larger than"),
    ],
)
def test_what_means_nothing_is_refused_by_every_command(
    text: str, words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert run(["stop"]) == 2
    told = capsys.readouterr().err
    assert words.format(file=file) in told
    assert "\x1b" not in told


def test_a_key_that_stands_there_twice(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("state-dir = 'a'\nstate_dir = 'b'\n")
    assert run(["stop"]) == 2
    assert f"state-dir in {file} stands there twice" in capsys.readouterr().err
    file.write_text("mdns = true\nno-mdns = true\n")
    assert run(["stop"]) == 2
    assert f"mdns in {file}: no-mdns stands there as well" in capsys.readouterr().err


def test_values_are_checked_as_flags_are(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By click itself, and by what the command makes of them."""
    file.write_text("[drain]\ntimeout = 0\n")
    assert run(["drain"]) == 2
    told = capsys.readouterr().err
    assert "Invalid value for '--timeout': 0 is not in the range" in told
    assert f"--timeout comes from drain.timeout in {file}: set it right there" in told
    file.write_text("log-level = 'loud'\n")
    assert run(["stop"]) == 2
    assert "'loud' is not one of" in capsys.readouterr().err
    file.write_text(f"network = '{'n' * 65}'\n")
    assert run(["stop"]) == 2
    assert f"(--network comes from network in {file}:" in capsys.readouterr().err


def test_the_environment_is_named_where_it_is_wrong(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIFFUSE_HOST_MEMORY", "lots")
    assert run(["host", "--model", "demo"]) == 2
    told = capsys.readouterr().err
    assert "'lots' is no size" in told
    assert "--memory comes from DIFFUSE_HOST_MEMORY: set it right or unset it" in told
    monkeypatch.setenv("DIFFUSE_BOOTSTRAP", "here and there")
    assert run(["status"]) == 2
    assert "--bootstrap comes from DIFFUSE_BOOTSTRAP" in capsys.readouterr().err
    assert run(["status", "--bootstrap", "neither this"]) == 2
    assert "comes from" not in capsys.readouterr().err


def test_a_secret_is_in_no_message(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", "hush" * 400)
    assert run(["stop"]) == 2
    told = capsys.readouterr().err
    assert "hush" not in told
    assert "--network-key comes from DIFFUSE_NETWORK_KEY" in told


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_secret_needs_a_file_that_nobody_else_reads(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("network-key = 'hush'\n")
    assert run(["stop"]) == 5, "no node runs here"
    file.chmod(0o644)
    capsys.readouterr()
    assert run(["stop"]) == 2
    told = capsys.readouterr().err
    assert f"others can read the file; run: chmod 600 {file}" in told
    assert "hush" not in told


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_file_that_others_may_write_is_refused(
    file: Path, bit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file.chmod(0o600 | bit)
    assert run(["stop"]) == 2
    assert f"run: chmod go-w {file}" in capsys.readouterr().err


def test_what_is_no_file_is_not_waited_for(file: Path, tmp_path: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="is no file"):
        read_config()
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match=r"is no file|cannot read"):
        read_config()


def test_the_file_that_is_named_must_be_there(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file.unlink()
    with pytest.raises(UsageError, match=f"there is no {file}, which DIFFUSE_CONFIG names"):
        read_config()
    monkeypatch.delenv("DIFFUSE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert not read_config().there


def test_the_cache_is_where_environment_or_file_say(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file.write_text(f"cache-dir = '{tmp_path}/a'\n")
    monkeypatch.delenv("DIFFUSE_CACHE_DIR", raising=False)
    assert cache_dir() == tmp_path / "a"
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", f"{tmp_path}/b")
    monkeypatch.setenv("DIFFUSE_ONLY_FLAGS", "*")
    assert cache_dir() == tmp_path / "b"
