"""The app's options come from flags, the environment and the file, as those of commands do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.configuration import APP_SETTINGS, DEMO_SETTINGS
from diffuse_core.errors import UsageError
from diffuse_core.settings import NetworkOptions
from diffuse_tui.__main__ import HELP
from diffuse_tui.launch import _parse, launch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, still empty."""
    path = tmp_path / "config.toml"
    path.touch(0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(path))
    for name in ("MDNS", "THEME", "MODEL", "NETWORK_KEY", "NO_HISTORY", "STATE_DIR"):
        monkeypatch.delenv(f"DIFFUSE_{name}", raising=False)
    return path


def test_each_layer_wins_over_those_below(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _parse([]).model is None
    file.write_text('model = "a"\n')
    assert _parse([]).model == "a"
    file.write_text('model = "a"\n[app]\nmodel = "b"\n')
    assert _parse([]).model == "b"
    monkeypatch.setenv("DIFFUSE_MODEL", "c")
    assert _parse([]).model == "c"
    monkeypatch.setenv("DIFFUSE_APP_MODEL", "d")
    assert _parse([]).model == "d"
    assert _parse(["--model", "e"]).model == "e"


def test_every_option_can_be_set(file: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hush\n")
    node = "ab" * 32
    file.write_text(
        f'bootstrap = ["a:1", "b:2"]\nallow = "{node}"\nnetwork = "n"\nmdns = false\n'
        f'network-key-file = "{key}"\n'
        '[app]\ntheme = "light"\nstate-dir = "/s"\nno-history = true\n'
    )
    given = _parse([])
    assert given.network == NetworkOptions("n", "hush", frozenset({bytes.fromhex(node)}), False)
    assert (given.bootstrap, given.theme, given.state_dir) == (("a:1", "b:2"), "light", "/s")
    assert given.no_history is True
    assert _parse(["--history", "--mdns"]).no_history is False
    assert _parse(["--history", "--mdns"]).network.mdns is True
    assert _parse(["--bootstrap", "c:3"]).bootstrap == ["c:3"]


def test_the_nearer_key_counts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("of a file\n")
    file.write_text(f'network-key-file = "{key}"\n')
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", "of the environment")
    assert _parse([]).network == NetworkOptions(secret="of the environment")
    assert _parse(["--network-key-file", str(key)]).network == NetworkOptions(secret="of a file")


def test_a_demo_takes_nothing_that_is_about_other_networks(file: Path) -> None:
    file.write_text(
        f'bootstrap = "a:1"\nallow = "{"ab" * 32}"\nmodel = "m"\nstate-dir = "/s"\n'
        '[demo]\nhosts = 2\ndtype = "fp32"\n'
    )
    given = _parse(["demo"])
    assert (given.bootstrap, given.network.allowed, given.model) == (None, None, None)
    assert (given.hosts, given.dtype, given.state_dir) == (2, "fp32", "/s")
    assert (_parse([]).hosts, _parse([]).dtype) == (3, "auto")
    assert _parse(["demo", "--hosts", "5"]).hosts == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('theme = "pink"', "theme in {file}: 'pink' is no value of --theme; choose one of"),
        (
            "[demo]\nhosts = 17",
            "demo.hosts in {file}: '17' is no value of --hosts; choose one of 1, 2,",
        ),
        ("[demo]\ndtype = 4", "demo.dtype in {file} is to be a text in quotes"),
        ('[app]\nthem = "dark"', "`diffuse-tui` has no such option; did you mean 'theme'?"),
        ("[app]\nno-history = 1", "app.no-history in {file} is to be true or false"),
        ("nonsense", "{file} is no TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    text: str, words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    with pytest.raises(UsageError):
        _parse(["demo"])
    assert launch(["demo"]) == 2
    assert words.format(file=file) in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--model", "--state-dir"])
def test_what_is_empty_is_refused_as_by_commands(
    option: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch([option, ""]) == 2
    assert f"{option} is empty; give a value" in capsys.readouterr().err
    assert file.read_text() == ""


def test_what_is_for_commands_does_not_stop_the_app(file: Path) -> None:
    file.write_text('threads = 4\nsome-new-option = 1\n[host]\nmemory = "1GiB"\n')
    assert _parse([]).model is None


def test_the_settings_of_the_app_are_its_options() -> None:
    for setting in (*APP_SETTINGS, *DEMO_SETTINGS):
        names = [f"--{name} " for name in setting.names]
        given = [f"--{setting.key}"]
        if setting.kind != "switch":
            given.append({"theme": "dark", "hosts": "2", "dtype": "auto"}.get(setting.key, "x"))
        assert any(name in HELP for name in names) or setting.key == "network-key"
        if setting.key not in ("network-key-file", "allow"):
            _parse(given)
