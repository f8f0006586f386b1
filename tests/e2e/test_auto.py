"""Hosts that leave the choice of the model to the network, in real processes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.adapters.models.hub_server import hub_server
from tests.e2e.processes import Processes
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPO = "org/tiny"
HALF = ("--max-layers", str(LAYERS // 2))
ASK = ("--raw", "--max-tokens", "8", "--ignore-eos", "--temperature", "0")


def _until_log(processes: Processes, name: str, text: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while text not in processes.log(name):
        assert time.monotonic() < deadline, processes.log(name)
        assert processes.running[name].poll() is None, processes.log(name)
        time.sleep(0.1)


def test_hosts_on_auto_take_the_model_of_the_hub_that_has_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = make_tiny_model(tmp_path / "tiny")
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path / "cache"))
    with hub_server() as hub, Processes(tmp_path) as processes:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.add(REPO, tiny.path)
        processes.start_sentinel()
        processes.start_host("auto", "auto", "--dtype", "fp32", *HALF)
        _until_log(processes, "auto", "no model on this network yet; waiting for one")
        # One that nobody else can get, and one of the hub with a gap.
        processes.start_host("files", str(tiny.path), "--dtype", "fp32", *HALF)
        _until_log(processes, "files", "ready: layers")
        _until_log(processes, "auto", "skips tiny in fp32: the hub has no model tiny")
        _until_log(processes, "auto", "no model of this network can be got here")
        processes.start_host("named", REPO, "--dtype", "fp32", *HALF)
        planned = processes.command(
            "plan", "--bootstrap", processes.sentinel, "--model", "auto", "--dtype", "fp32", *HALF,
            "--memory", "1GiB", "--json",
        )  # fmt: skip
        plan = json.loads(planned.stdout)
        assert {need["id"] for need in plan["ranking"]} >= {"tiny"}, planned.stderr
        model = processes.until_servable(hosts=2)
        assert model["id"] == REPO
        assert f"chose {REPO} in fp32: fills the gap" in processes.log("auto")
        answer = processes.query(REPO, words(9), *ASK)
        assert len(answer["route"]) == 2
        assert tuple(answer["token_ids"]) == tiny.says(ids(9), 8, ignore_eos=True)


def test_the_demo_model_is_got_by_its_name(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        processes.start_host("named", "demo", "--memory", "150MiB", "--dtype", "bf16")
        processes.start_host("auto", "auto", "--memory", "400MiB")
        model = processes.until_servable()
        assert model["id"] == "smollm2-135m-instruct"
        assert "chose smollm2-135m-instruct" in processes.log("auto")


def test_a_host_that_waits_for_a_model_ends_at_once(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        processes.start_host("auto", "auto")
        _until_log(processes, "auto", "waiting for one")
        process = processes.running["auto"]
        process.terminate()
        assert process.wait(10) == 0
        done = processes.command("plan", "--bootstrap", processes.sentinel, "--model", "auto")
        assert done.returncode == 3
        assert "no model on this network yet" in done.stderr
