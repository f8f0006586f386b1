"""Hosts that name a model as the hub does say what hosts of its files say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.adapters.models.hub_server import COMMIT, hub_server
from tests.e2e.processes import Processes
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPO = "org/tiny"
ASK = ("--raw", "--max-tokens", "8", "--ignore-eos", "--temperature", "0")


def test_a_model_of_the_hub_is_served_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = make_tiny_model(tmp_path / "tiny")
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with hub_server() as hub, Processes(tmp_path) as processes:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.add(REPO, tiny.path)
        processes.start_sentinel()
        planned = processes.command(
            "plan", "--bootstrap", processes.sentinel, "--model", REPO, "--json", "--dtype", "fp32"
        )
        assert json.loads(planned.stdout)["slice"] == [0, LAYERS], planned.stderr
        for number in range(2):
            processes.start_host(
                f"host-{number}", REPO, "--max-layers", str(LAYERS // 2), "--dtype", "fp32"
            )
        model = processes.until_servable(hosts=2)
        assert (model["id"], model["layers"]) == (REPO, LAYERS)
        answer = processes.query(REPO, words(9), *ASK)
        assert len(answer["route"]) == 2
        assert tuple(answer["token_ids"]) == tiny.says(ids(9), 8, ignore_eos=True)
        assert f"{REPO} of the hub is at commit {COMMIT}" in processes.log("host-0")
        assert {seen.authorization for seen in hub.seen if seen.where == "storage"} == {None}
        # The same files in a directory: by another name, but with the same fingerprint.
        for number in range(2):
            process = processes.running.pop(f"host-{number}")
            process.terminate()
            process.wait(20)
        processes.start_host("local", str(tiny.path), "--dtype", "fp32")
        local = processes.until_servable()
        assert (local["id"], local["fingerprint"]) == (tiny.path.name, model["fingerprint"])
        alone = processes.query(tiny.path.name, words(9), *ASK)
        assert alone["token_ids"] == answer["token_ids"]


def test_what_the_hub_refuses_is_told_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_server() as hub, Processes(tmp_path) as processes:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path / "cache"))
        done = processes.command("host", "--model", "org/none", "--listen", "127.0.0.1:0")
        assert done.returncode == 3
        assert "the hub has no model org/none that you may see" in done.stderr
        assert "Traceback" not in done.stderr
        processes.start_sentinel()
        done = processes.command(
            "plan", "--bootstrap", processes.sentinel, "--model", "org/none", "--json"
        )
        assert done.returncode == 3
        assert "no node holds a model named 'org/none'" in done.stderr
        assert "the hub has no model org/none" in done.stderr
