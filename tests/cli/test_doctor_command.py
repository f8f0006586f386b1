"""The command `doctor`, run as people run it: good, with faults, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.cli import run
from diffuse_core.settings import DEFAULT_PORT
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Found = dict[str, dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SILENT = "192.0.2.77:9440"
"""An address of documentation, where nobody answers (RFC 5737)."""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this user's counts."""
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path / "cache"))
    config = tmp_path / "config.toml"
    config.touch(mode=0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(config))
    monkeypatch.setenv("DIFFUSE_MDNS", "0")


def doctor(processes: Processes, *arguments: str, code: int, within: Sequence[str] = ()) -> Found:
    """Findings by name."""
    state = str(processes.directory / "mine")
    command = ("doctor", "--json", "--state-dir", state, *arguments)
    done = processes.command(*command, within=within)
    assert done.returncode == code, done.stderr + done.stdout
    told = json.loads(done.stdout)
    assert told["complete"]
    return {one["name"]: one for one in told["findings"]}


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_a_machine_without_a_network(processes: Processes) -> None:
    found = doctor(processes, code=0)
    assert found["python"]["state"] == "ok"
    assert found["torch"]["facts"]["version"]
    assert found["network"]["state"] == "note"
    assert not (processes.directory / "mine").exists(), "nothing is made"


def test_a_network_and_the_node_of_it_here(processes: Processes) -> None:
    with processes:
        address = processes.start_sentinel()
        state = str(processes.directory / "sentinel")
        done = processes.command("doctor", "--json", "--state-dir", state, "--bootstrap", address)
        found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0, done.stdout
    assert found[f"bootstrap {address}"]["facts"]["rtt_s"] > 0
    assert found["node here"]["state"] == "ok"
    assert found["reachable"]["state"] == "ok"
    assert len(found["sentinels"]["facts"]["sentinels"]) == 1
    assert abs(found["clock of others"]["facts"]["others_ahead_s"]) < 5


def test_addresses_fail_each_in_its_own_way(processes: Processes) -> None:
    with processes, socket.create_server(("127.0.0.1", 0)) as stranger:
        address = processes.start_sentinel()
        silent = f"127.0.0.1:{stranger.getsockname()[1]}"
        given = f"{address},127.0.0.1:9,nosuch.invalid:9440,{silent}"
        found = doctor(processes, "--network", "other", "--bootstrap", given, code=8)
    failed = {
        one["facts"]["address"]: one["facts"] for one in found.values() if "failed" in one["facts"]
    }
    assert failed[address]["failed"] == "handshake"
    assert failed[address]["reason"] == "network"
    assert failed["127.0.0.1:9"]["failed"] == "connect"
    assert failed["nosuch.invalid:9440"]["failed"] == "resolve"
    assert failed[silent]["failed"] == "handshake"
    assert found["network"]["state"] == "problem"


def test_another_network_key_is_told(processes: Processes) -> None:
    with processes:
        address = processes.start_sentinel()
        key = ("--network-key", "a secret of ours")
        found = doctor(processes, *key, "--bootstrap", address, code=8)
    (finding,) = [one for name, one in found.items() if name.startswith("bootstrap")]
    assert finding["facts"]["reason"] == "keyed"
    assert "a secret" not in json.dumps(found)


def test_planted_faults(processes: Processes, tmp_path: Path) -> None:
    damaged = tmp_path / "bad.gguf"
    damaged.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        faults = ("--listen", f"127.0.0.1:{port}", "--serve-port", port, "--model", str(damaged))
        limits = ("env", "OMP_NUM_THREADS=64", "sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
        found = doctor(processes, *faults, code=8, within=limits)
    assert found["port"]["facts"]["pid"] in (None, os.getpid())
    problems = {name for name, one in found.items() if one["state"] == "problem"}
    assert problems == {"port", "serve port", "model file", "open files"}
    assert found["threads"]["state"] == "warning"
    assert all(one["step"] for one in found.values() if one["state"] in ("problem", "warning"))


def test_a_torch_that_does_not_load_is_a_finding(processes: Processes, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise OSError('libtorch.so: undefined symbol')\n")
    within = ("env", f"PYTHONPATH={broken.parent}:{os.getcwd()}")  # noqa: PTH109
    found = doctor(processes, code=8, within=within)
    assert "undefined symbol" in found["torch"]["found"]
    assert found["memory"]["state"] == "ok"


def test_an_interruption_shows_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diffuse_core", "doctor", "--state-dir", str(tmp_path / "s")]
    child = subprocess.Popen([*command, "--bootstrap", SILENT], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        first = child.stdout.readline()
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait() == 130
    assert first.strip() == "Software"
    assert "python" in rest
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("wrong", [["--serve-port", "0"], ["--listen", "here:x"], ["--model", ""]])
def test_what_is_no_use_is_refused(wrong: list[str]) -> None:
    assert run(["doctor", *wrong]) == 2


def test_an_address_needs_no_port_as_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def check(asked: Any, *_: object) -> None:
        seen.append(asked.listen)

    monkeypatch.setattr(sys.modules["diffuse_core.cli.doctor.command"], "_check", check)
    assert run(["doctor", "--listen", "192.0.2.7"]) == 0
    assert seen == [("192.0.2.7", DEFAULT_PORT)]
