"""The main job, with the real SmolLM2 in real processes driven by the command line."""

from __future__ import annotations

import itertools
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTION = "What is the capital of France?"


CAPS = {"bf16": "150MiB", "int4": "95MiB"}


@pytest.fixture(scope="module", params=CAPS)
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, demo_gguf: Path
) -> Iterator[Processes]:
    """Three hosts of which none can hold the model, all under one contract."""
    with Processes(tmp_path_factory.mktemp("network")) as processes:
        processes.start_sentinel()
        for number in range(3):
            processes.start_host(
                f"host-{number}", "demo", "--memory", CAPS[request.param], "--dtype", request.param
            )
        processes.until_servable(hosts=3)
        yield processes


def test_the_answer_is_right_and_ends_by_itself(network: Processes) -> None:
    answer = network.query("demo", QUESTION, "--max-tokens", "64")
    assert "Paris" in answer["text"]
    assert "<|" not in answer["text"]
    assert answer["finish_reason"] == "stop"
    assert answer["token_ids"][-1] == 2  # <|im_end|>
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"])
    assert answer["timings"]["ttft_s"] > 0
    edges = [step["slice"] for step in answer["route"]]
    assert len(edges) >= 2
    assert edges[0][0] == 0
    assert edges[-1][1] == 30
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))


def test_no_host_holds_the_whole(network: Processes) -> None:
    model = network.models()[0]
    assert model["layers"] == 30
    assert model["hosts"] == 3
    assert model["min_replicas"] < 3


def test_streamed_text_equals_the_whole(network: Processes) -> None:
    told = network.command(
        "query", "--bootstrap", network.sentinel, "--model", "demo", "--prompt", QUESTION
    )
    assert told.stdout.rstrip("\n") == network.query("demo", QUESTION)["text"]


def test_a_lost_slice_is_named(tmp_path: Path, demo_gguf: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        for number in range(2):
            processes.start_host(
                f"host-{number}", str(demo_gguf), "--max-layers", "15", "--dtype", "bf16"
            )
        model = processes.until_servable(hosts=2)
        before = processes.query(model["id"], QUESTION, "--max-tokens", "8")
        assert len(before["route"]) == 2
        processes.running["host-1"].send_signal(signal.SIGKILL)
        processes.running.pop("host-1").wait()
        processes.until(lambda: not processes.models())
        failed = processes.command(
            "query", "--bootstrap", processes.sentinel, "--model", model["id"], "--prompt", "Hi"
        )
        assert failed.returncode == 4
        assert " of 30 are held by no live node" in failed.stderr
        listed = processes.models("--all")[0]
        assert listed["state"] == "Incomplete"
        assert listed["missing"]


def test_demo_asks_and_leaves_nothing(tmp_path: Path, demo_gguf: Path) -> None:
    with Processes(tmp_path) as processes:
        done = processes.command("demo", "--ask", QUESTION, seconds=200)
        assert done.returncode == 0, done.stderr
        assert "Paris" in done.stdout


def test_ctrl_c_ends_all_of_demo(tmp_path: Path, demo_gguf: Path) -> None:
    with Processes(tmp_path) as processes:
        demo = processes.start("demo", "demo")
        processes.until(lambda: "Ctrl+C stops everything" in processes.log("demo"), 120)
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) == 4
        demo.send_signal(signal.SIGINT)
        assert demo.wait(20) == 130
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive
