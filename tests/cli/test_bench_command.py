"""The command `bench`: refused at once where it cannot be, and run on a network of processes."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli import run
from tests.e2e.processes import Processes
from tests.services.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--prompt-tokens", "20", "--tokens", "8", "--concurrency", "1,2", "--rounds", "1")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--concurrency", "1,x"],
        ["--concurrency", "65"],
        ["--concurrency", "1,2,3,4,5,6,7,8,9"],
        ["--rounds", "0"],
        ["--tokens", "1"],
        ["--limit-seconds", "0"],
        ["--compare", "/no/such/file"],
    ],
)
def test_what_is_no_use_is_refused(wrong: list[str]) -> None:
    assert run(["bench", "--model", "m", *wrong]) == 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_live_network(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny")
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        for name in ("one", "two"):
            processes.start_host(name, str(model.path), "--max-layers", "5")
        processes.until_servable(2)
        ask = ("bench", "--bootstrap", processes.sentinel, *SMALL)
        done = processes.command(*ask, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        before = tmp_path / "before.json"
        before.write_text(done.stdout)
        compared = processes.command(*ask, "--compare", str(before))
        ended = processes.spawn(*ask[:-1], "100")
        assert ended.stderr is not None
        for line in ended.stderr:
            if b"round 2" in line:
                ended.send_signal(signal.SIGINT)
                break
        out, _ = ended.communicate(timeout=30)
        cut = processes.command(*ask[:-1], "100", "--limit-seconds", "1")
    assert told["complete"]
    assert told["conditions"]["model"] == "tiny"
    assert told["prompt_lengths"] == [20]
    assert [stage["slice"] for stage in told["stages"]] == [[0, 5], [5, 10]]
    assert told["sessions"] == [
        {"sessions": 1, "refused": 0, "failed": 0},
        {"sessions": 2, "refused": 0, "failed": 0},
    ]
    assert told["rows"]["plain.decode_tokens_per_s"]["median"] > 0
    assert "round 1 of 1" in done.stderr
    assert compared.returncode == 0
    assert "RATIO" in compared.stdout
    assert ended.returncode == 130
    assert b"not complete: 1 rounds were measured" in out
    assert cut.returncode == 0
    assert "--limit-seconds" in cut.stderr
