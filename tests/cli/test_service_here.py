"""What is asked of a machine before a unit is written, and commands as a service's user."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from diffuse_core.cli import cli
from diffuse_core.cli.service import asked, here, inner, installed, unit
from diffuse_core.errors import UsageError

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
PYTHON = Path("/usr/bin/python3")


def made(account: str | None = None, **given: object) -> unit.Unit:
    words = ("host", "--model", "demo")
    return unit.Unit("diffuse-host", "system", inner.Inner("host", words, given), PYTHON, account)


@POSIX
def test_what_only_its_owner_can_enter_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    top, lacks = tmp_path.resolve(), here.lacks
    # Those above are this machine's, and often closed.
    monkeypatch.setattr(
        here, "lacks", lambda path, right: top in path.parents and lacks(path, right)
    )
    shut, model = top / "shut", top / "shut" / "m.gguf"
    shut.mkdir(0o755)
    model.touch(0o644)
    assert here.closed(model) is None
    assert here.closed(shut / "later.gguf") is None
    link = top / "link.gguf"
    link.symlink_to(model)
    assert here.closed(link) is None
    model.chmod(0o600)
    assert here.closed(model) == model
    shut.chmod(0o700)
    assert here.closed(model) == shut
    # Root may follow it, and so look at what it leads to; others may not.
    assert here.closed(link) in (link, shut)


def test_a_made_up_user_has_to_read_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "closed", lambda path: path.parent if path == PYTHON else None)
    with pytest.raises(UsageError, match=r"/usr/bin is closed to others: give --run-as"):
        here.check_here(made())
    monkeypatch.setattr(here, "closed", lambda _path: None)
    here.check_here(made())


def test_a_made_up_user_has_to_read_the_settings_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    for module in (here, unit):
        monkeypatch.setattr(module, "CONFIG", config)
    monkeypatch.setattr(here, "closed", lambda path: path if path == config else None)
    here.check_here(made())
    config.touch()
    with pytest.raises(UsageError, match=r"secrets in /etc/diffuse/diffuse-host\.env"):
        here.check_here(made())


@POSIX
def test_who_it_runs_as_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="useradd --system nobody-of-that-name"):
        here.check_here(made("nobody-of-that-name"))
    me = getpass.getuser()
    log = tmp_path / "logs" / "log"
    with pytest.raises(UsageError, match=r"no directory .*logs"):
        here.check_here(made(me, log_file=str(log)))
    log.parent.mkdir()
    here.check_here(made(me, log_file=str(log)))
    with pytest.raises(UsageError) as caught:
        here.check_here(made(me, state_dir="/no/it's"))
    assert str(caught.value).endswith(f" -o {me} '/no/it'\"'\"'s'")


def text_of(*words: str) -> str:
    found = CliRunner().invoke(cli, ["service", "print", "--system", *words])
    assert found.exit_code == 0
    return found.stdout


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text("very secret")
    return str(file)


def test_a_secret_that_systemd_hands_over_opens_no_home() -> None:
    words = ("sentinel", "--network-key-file", "/root/key")
    of = inner.Inner("sentinel", words, {"network_key_file": Path("/root/key")})
    assert Path("/root/key") not in [*unit.Unit("s", "system", of, PYTHON).read()]


def test_a_command_runs_as_the_user_of_a_service(key: str) -> None:
    words = ("--network", "mine", "--network-key-file", key)
    text = text_of("host", "--model", "demo", *words)
    found = asked.run_words("diffuse-host", text, ["drain", "--timeout", "5"])
    assert found[0] == "systemd-run"
    at = found.index("--")
    assert found[at + 2 :] == ["-m", "diffuse_core", "drain", "--timeout", "5"]
    for one in (
        "--property=DynamicUser=yes",
        "--property=User=diffuse-host",
        "--property=StateDirectory=diffuse-host",
        "--property=StateDirectoryMode=0700",
        "--pty",
        "--pipe",
        f"--property=LoadCredential=network-key:{key}",
        "--property=EnvironmentFile=-/etc/diffuse/diffuse-host.env",
        "--setenv=DIFFUSE_STATE_DIR=/var/lib/diffuse-host",
        "--setenv=DIFFUSE_NETWORK=mine",
    ):
        assert one in found[:at]
    (handed,) = [one for one in found if "NETWORK_KEY_FILE" in one]
    assert handed.endswith(".service/network-key")
    assert "/run/credentials/diffuse-host-asked-" in handed
    assert "very secret" not in " ".join(found)


def test_each_secret_of_a_service_reaches_the_command(key: str) -> None:
    text = text_of("serve", "--network-key-file", key, f"--api-key-file={key}")
    found = asked.run_words("diffuse-serve", text, ["serve", "--print-key"])
    own = next(one.partition("=")[2] for one in found if one.startswith("--unit="))
    for name in ("network-key", "api-key"):
        assert f"--property=LoadCredential={name}:{key}" in found
        setting = f"DIFFUSE_{name.replace('-', '_').upper()}_FILE"
        assert f"--setenv={setting}=/run/credentials/{own}.service/{name}" in found


def test_a_command_finds_the_state_that_was_given() -> None:
    words = ("--run-as", "diffuse", "host", "--model", "demo")
    text = text_of(*words, "--state-dir=/srv/state")
    found = asked.run_words("diffuse-host", text, ["status"])
    assert "--property=User=diffuse" in found
    assert "--setenv=DIFFUSE_STATE_DIR=/srv/state" in found


def test_words_and_places_reach_the_command_as_they_are() -> None:
    """It replaces `$NAME` in what it is to run, as in ExecStart=, but not in the environment."""
    text = text_of("--run-as", "diffuse", "host", "--model", "demo", "--state-dir", "/srv/$5 50%")
    found = asked.run_words("diffuse-host", text, ["query", "--prompt", "$5 of $20?"])
    assert found[-2:] == ["--prompt", "$$5 of $$20?"]
    assert "--setenv=DIFFUSE_STATE_DIR=/srv/$5 50%" in found


@pytest.mark.parametrize(
    "start",
    ["", "ExecStart=", 'ExecStart=/usr/bin/python -m "diffuse_core', "ExecStart=/bin/diffuse"],
)
def test_a_unit_that_was_changed_is_told(start: str) -> None:
    text = "\n".join(
        start if line.startswith("ExecStart=") else line
        for line in text_of("sentinel").splitlines()
    )
    with pytest.raises(UsageError, match=r"was changed: .* --force.*systemctl edit diffuse-x"):
        asked.run_words("diffuse-x", text, ["status"])


def test_no_user_is_guessed() -> None:
    with pytest.raises(UsageError, match="shorter --name"):
        asked.run_words("9th", text_of("--name", "9th", "sentinel"), ["status"])
    with pytest.raises(UsageError, match="did not write"):
        asked.run_words("ssh", "[Service]\nUser=root\n", ["status"])


@pytest.mark.parametrize(
    ("words", "uid", "told"),
    [
        ((), 0, "which command"),
        (("nonsense",), 0, "which command"),
        (("--name", "other", "status"), 0, "no .*other.service"),
        (("status",), 1000, "only root"),
        (("--name", "../x", "status"), 0, "--name"),
    ],
)
@POSIX
def test_asking_what_cannot_be_asked(
    words: tuple[str, ...], uid: int, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _machine(monkeypatch, tmp_path, uid)
    with pytest.raises(UsageError, match=told):
        CliRunner().invoke(
            cli, ["service", "ask", *words], standalone_mode=False, catch_exceptions=False
        )


@POSIX
def test_the_exit_code_is_that_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _machine(monkeypatch, tmp_path, 0)
    tool = tmp_path / "bin" / "systemd-run"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/ran\nexit 6\n')
    tool.chmod(0o755)
    found = CliRunner().invoke(cli, ["service", "ask", "drain"], standalone_mode=False)
    assert found.return_value == 6
    assert (tmp_path / "ran").read_text().endswith(" -m diffuse_core drain\n")


def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int) -> None:
    """One with a systemd and a host that is a service."""
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "diffuse-host.service").write_text(text_of("host", "--model", "demo"))
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(installed, "RUNNING", tmp_path)
    monkeypatch.setattr(installed, "paths_of", lambda _scope, _home: tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
