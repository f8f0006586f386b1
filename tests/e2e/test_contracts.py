"""The demo model in its own 4-bit codes, and verified, by real commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import Processes, environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_hosts_of_4_bits_answer_right_and_others_join_them(
    tmp_path: Path, demo_gguf: Path
) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        model = str(demo_gguf)
        for number, dtype in enumerate(("int4", "auto")):
            processes.start_host(f"host-{number}", model, "--max-layers", "15", "--dtype", dtype)
            if not number:
                # What the network has is known only once it is there.
                processes.address("host-0")
                processes.until(lambda: processes.models("--all"))
        servable = processes.until_servable(hosts=2)
        answer = processes.query(servable["id"], "What is the capital of Germany?")
        assert "Berlin" in answer["text"]
        for number in range(2):
            assert "computes with 1 thread in int4 on cpu" in processes.log(f"host-{number}")
        done = processes.command(
            "plan", "--bootstrap", processes.sentinel, "--model", servable["id"], "--json"
        )
        assert done.returncode == 0, done.stderr
        planned = json.loads(done.stdout)
        start, end = planned["slice"]
        # A layer of the demo model takes 2.1 MiB in 4 bits, 6.8 in bf16.
        assert planned["bytes"]["weights"] < 3 * 2**20 * (end - start)


def test_the_demo_model_is_equal_in_slices(tmp_path: Path, demo_gguf: Path) -> None:
    processes = Processes(tmp_path)
    done = processes.command(
        *("verify", str(demo_gguf), "--dtype", "int4", "--threads", "1", "--tokens", "6"),
        "--json",
        seconds=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is report["same_bits"] is True
    assert len(report["outcomes"]) > 29


def test_ctrl_c_ends_a_verification_at_once(tmp_path: Path, demo_gguf: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "diffuse_core", "verify", str(demo_gguf), "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        # Where the tests run in the background, Ctrl+C is ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("cut "):
                break
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(5) == 130
        assert time.monotonic() - started < 2
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
