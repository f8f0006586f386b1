"""Units that systemd accepts, that give nothing away, and that run what was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from diffuse_core.cli import cli
from diffuse_core.cli.service import here, inner, installed, unit
from diffuse_core.cli.service.unit import MARK, quoted
from diffuse_core.errors import DiffuseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = ("host", "--model", "demo", "--memory", "4GiB")


def run(*words: str) -> str:
    """What `diffuse service` prints.

    Raises:
        Exception: what it ends with, as it is.
    """
    done = CliRunner().invoke(cli, ["service", *words], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def lines(*words: str) -> list[str]:
    return run("print", "--system", *words).splitlines()


def values(found: Sequence[str], key: str) -> list[str]:
    return [line.partition("=")[2] for line in found if line.startswith(f"{key}=")]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a systemd that notes what it is asked."""
    monkeypatch.setattr(installed, "RUNNING", tmp_path)
    monkeypatch.setattr(installed, "paths_of", lambda scope, _home: tmp_path / scope)
    # Wherever this Python lies; what else is asked of a machine: test_service_here.
    monkeypatch.setattr(here, "closed", lambda _path: None)
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho ActiveState=active\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tmp_path


def asked(place: Path) -> list[str]:
    file = place / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_a_unit_says_how_the_command_runs() -> None:
    found = lines(*HOST, "--metrics", "9464", "--drain-timeout", "300")
    assert found[0].startswith(MARK)
    (start,) = values(found, "ExecStart")
    assert start.endswith(
        "-m diffuse_core host --model demo --memory 4GiB --metrics 9464 --drain-timeout 300"
    )
    assert values(found, "Type") == ["notify"]
    assert values(found, "RestartPreventExitStatus") == ["2 3"]
    assert values(found, "TimeoutStopSec") == ["320"]
    assert values(found, "StateDirectory") == ["diffuse-host"]
    assert "DIFFUSE_STATE_DIR=%S/diffuse-host" in values(found, "Environment")
    assert values(found, "DynamicUser") == ["yes"]
    assert any(line.startswith("# MemoryMax=") for line in found)
    assert not values(found, "PrivateDevices")
    assert values(lines(*HOST, "--device", "cpu"), "PrivateDevices") == ["yes"]
    assert values(lines("sentinel"), "TimeoutStopSec") == ["26"]


def test_a_unit_of_a_user_needs_nothing_of_the_machine() -> None:
    found = run("print", "--user", *HOST).splitlines()
    assert values(found, "WantedBy") == ["default.target"]
    for key in ("DynamicUser", "User", "StateDirectory", "ProtectSystem", "EnvironmentFile"):
        assert not values(found, key)


def test_a_secret_stands_in_no_unit(tmp_path: Path) -> None:
    key = tmp_path / "a %key"
    key.write_text("very secret")
    with pytest.raises(UsageError, match="--network-key-file FILE"):
        run("print", *HOST, "--network-key", "very secret")
    found = lines(*HOST, "--network-key-file", str(key))
    assert "very secret" not in "\n".join(found)
    (start,) = values(found, "ExecStart")
    assert start.endswith(" --network-key-file ${CREDENTIALS_DIRECTORY}/network-key")
    written = str(key).replace("%", "%%")
    assert values(found, "LoadCredential") == [f"network-key:{written}"]
    both = lines(*HOST, f"--network-key-file={key}")
    assert values(both, "ExecStart")[0].endswith("-file=${CREDENTIALS_DIRECTORY}/network-key")
    api = lines("serve", "--api-key-file", str(key))
    assert values(api, "LoadCredential") == [f"api-key:{written}"]
    assert values(api, "ExecStart")[0].endswith(
        "serve --api-key-file ${CREDENTIALS_DIRECTORY}/api-key"
    )
    own = run("print", "--user", *HOST, "--network-key-file", str(key)).splitlines()
    assert str(tmp_path) in values(own, "ExecStart")[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "which command"),
        (("query", "--model", "demo"), "'query' does not run as a service"),
        (("nonsense",), "these do: host, sentinel, node"),
        (("host", "--model", "demo", "--exit-with-parent"), "no parent"),
        (("host", "--model", "demo", "--memory", "much"), "much"),
        (("host", "--model", "demo", "--metrics", "here"), "--metrics"),
        (("sentinel", "--listen", "nowhere:x"), "no address"),
        (("sentinel", "--bootstrap", "@"), "no address"),
        (("host", "--model", "de\nmo"), "line breaks"),
        (("host", "--model", "demo", "--state-dir", "/x"), "--run-as USER"),
        (("host", "--model", "demo", "--log-file", "/x/log"), "--run-as USER"),
    ],
)
def test_what_could_not_run_is_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        run("print", "--system", *words)
    assert told in str(caught.value)


def test_a_typing_error_is_told_as_by_the_command_itself() -> None:
    done = CliRunner().invoke(cli, ["service", "print", "host", "--modle", "demo"])
    assert done.exit_code == 2
    assert "No such option" in done.output
    assert "--modle" in done.output
    assert "Usage: diffuse host" in done.output


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65, "a.service", "-x"])
def test_a_name_is_no_path(name: str) -> None:
    unit_of = inner.Inner("host", ("host",), {})
    with pytest.raises(UsageError, match="--name"):
        unit.check_unit(unit.Unit(name, "system", unit_of, Path("/bin/python")))


def test_who_it_runs_as_may_be_said() -> None:
    found = lines("--run-as", "diffuse", *HOST, "--log-file", "/var/log/diffuse/log")
    assert values(found, "User") == ["diffuse"]
    assert not values(found, "DynamicUser")
    assert values(found, "ReadWritePaths") == ["/var/log/diffuse"]
    with pytest.raises(UsageError, match="name of a user"):
        lines("--run-as", "root\nExecStart=x", *HOST)
    with pytest.raises(UsageError, match="runs as you"):
        run("print", "--user", "--run-as", "diffuse", *HOST)


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("--model=demo", "--model=demo"),
        ("a b", '"a b"'),
        ("50%", '"50%%"'),
        ("$HOME", '"$$HOME"'),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("", '""'),
        (";", '";"'),
    ],
)
def test_words_reach_the_command_as_they_are(word: str, written: str) -> None:
    assert quoted(word) == written


def test_paths_are_those_of_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").touch()
    (tmp_path / "demo").mkdir()
    start = values(lines("host", "--model", "./m.gguf"), "ExecStart")[0]
    assert start.endswith(f"--model {tmp_path}/m.gguf")
    # A name of the network, whatever lies here.
    assert values(lines("host", "--model", "demo"), "ExecStart")[0].endswith("--model demo")
    assert values(lines("host", "--model", "org/name"), "ExecStart")[0].endswith("org/name")


def test_a_place_that_is_written_to_is_one_place() -> None:
    odd = '/srv/my "50%" \\ logs'
    found = lines("--run-as", "diffuse", *HOST, "--log-file", f"{odd}/log")
    assert values(found, "ReadWritePaths") == ['"/srv/my \\"50%%\\" \\\\ logs"']


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("scope", ["--system", "--user"])
@pytest.mark.parametrize(
    "words", [HOST, ("sentinel",), ("host", "--model", "odd $name; 50% \"x\" 'y'"), ("serve",)]
)
def test_systemd_takes_the_unit(words: tuple[str, ...], scope: str, tmp_path: Path) -> None:
    file = tmp_path / "diffuse-test.service"
    more = ()
    if scope == "--system":
        more, words = ("--run-as", "root"), (*words, "--log-file", '/srv/my "50%" \\ logs/log')
    file.write_text(run("print", scope, "--name", "diffuse-test", *more, *words))
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_is_written_once_and_never_over_another(place: Path) -> None:
    told = run("install", "--system", *HOST)
    path = place / "system" / "diffuse-host.service"
    assert path.read_text() == run("print", "--system", *HOST)
    # Not `enable --now`, after which one that runs has still what an earlier unit said.
    assert told.index("systemctl enable diffuse-host.service") < told.index("systemctl restart")
    assert asked(place) == []
    run("install", "--system", *HOST)
    with pytest.raises(UsageError, match="--force"):
        run("install", "--system", *HOST, "--threads", "2")
    assert "--threads" not in path.read_text()
    run("install", "--system", "--force", *HOST, "--threads", "2")
    assert "--threads 2" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644


def test_it_is_started_and_removed_where_that_was_asked_for(place: Path) -> None:
    told = run("install", "--user", "--now", "--name", "mine", "sentinel")
    begun = ["daemon-reload", "enable mine.service", "restart mine.service"]
    assert asked(place) == [f"--user {words}" for words in begun]
    assert "enable-linger" in told
    run("uninstall", "--user", "--now", "--name", "mine")
    ended = ["disable --now mine.service", "reset-failed mine.service", "daemon-reload"]
    assert asked(place)[3:] == [f"--user {words}" for words in ended]
    assert not list((place / "user").iterdir())
    with pytest.raises(UsageError, match="there is no"):
        run("uninstall", "--user", "--name", "mine")


def test_what_somebody_else_wrote_stays(place: Path) -> None:
    path = place / "system" / "diffuse-host.service"
    path.parent.mkdir()
    path.write_text("[Unit]\n")
    with pytest.raises(UsageError, match="did not write"):
        run("uninstall", "--system")
    assert path.exists()
    link = path.parent / "multi-user.target.wants" / path.name
    link.parent.mkdir()
    link.symlink_to(path)
    told = run("uninstall", "--system", "--force")
    assert not path.exists()
    assert not link.is_symlink()
    assert "systemctl stop diffuse-host.service\n  systemctl daemon-reload" in told


def test_a_failure_of_systemd_is_told(place: Path) -> None:
    (place / "bin" / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    with pytest.raises(DiffuseError, match="no bus"):
        run("install", "--system", "--now", "sentinel")


def test_what_systemd_says_of_it(place: Path) -> None:
    assert "ActiveState  active" in run("status", "--system")
    assert asked(place)[0].startswith("show diffuse-host.service")
    assert '"ActiveState": "active"' in run("status", "--system", "--json")


def test_one_that_does_not_run_is_told_by_the_exit_code(place: Path) -> None:
    tool = place / "bin" / "systemctl"
    tool.write_text("#!/bin/sh\necho ActiveState=failed\n")
    found = CliRunner().invoke(cli, ["service", "status", "--system"], standalone_mode=False)
    assert found.return_value == 5


@pytest.mark.parametrize(("state", "told"), [("active", True), ("inactive", False)])
def test_what_one_said_last_does_not_outlive_it(place: Path, state: str, told: bool) -> None:
    """Systemd keeps it: `ready` of one that was killed."""
    tool = place / "bin" / "systemctl"
    tool.write_text(f"#!/bin/sh\necho ActiveState={state}\necho StatusText=takes sessions\n")
    found = CliRunner().invoke(cli, ["service", "status", "--system"], standalone_mode=False)
    assert ("takes sessions" in found.stdout) == told


def test_settings_that_do_not_reach_the_service_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('network = "abc"\n')
    monkeypatch.setenv("DIFFUSE_CONFIG", str(file))
    monkeypatch.setenv("DIFFUSE_NETWORK", "abc")
    found = CliRunner().invoke(cli, ["service", "print", "--system", "sentinel"])
    assert "DIFFUSE_NETWORK" in found.stderr
    assert str(file) in found.stderr
    assert "abc" not in found.stdout
    monkeypatch.delenv("DIFFUSE_NETWORK")
    found = CliRunner().invoke(cli, ["service", "print", "--user", "sentinel"])
    assert str(file) not in found.stderr.replace("DIFFUSE_CONFIG", "")


def test_where_there_is_no_systemd_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "RUNNING", tmp_path / "no")
    for words in (("install", *HOST), ("uninstall",), ("status",)):
        with pytest.raises(UsageError, match="systemd does not run this machine"):
            run(*words)
    assert run("print", "--system", *HOST)


@pytest.mark.parametrize("name", ["../../etc/x", "-H", "a/b", "a b"])
def test_only_a_name_is_a_unit(place: Path, name: str) -> None:
    for words in (("uninstall", "--now", "--force"), ("status",)):
        with pytest.raises(UsageError, match="--name"):
            run(*words, "--name", name)
    assert asked(place) == []


@pytest.mark.parametrize("model", ["./m", "../m", "m.gguf", "~/m"])
def test_what_is_plainly_a_path_is_made_absolute_before_it_is_there(model: str) -> None:
    """A unit may be printed before the model has come; the service begins elsewhere."""
    (line,) = [
        line for line in run("print", "host", "--model", model).splitlines() if "ExecS" in line
    ]
    named = line.rpartition(" ")[2]
    assert named.startswith("/"), line
    assert run("print", "host", "--model", "no/such").count(" no/such\n") == 1
