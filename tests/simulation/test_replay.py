"""Runs can be repeated: the same seed gives the same trace, and a failing one is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gathering import gather
from scenarios import Pausing

FAILING = """
def test_that_fails(seed):
    assert seed == 41
"""


def _trace(seed: int) -> str:
    net = gather(
        seed, 20, loss=0.1, delay=(0.001, 0.05), duplicates=0.05, reorder=0.05, settle=2.0
    )
    Pausing(net, share=0.2, every=(2.0, 4.0)).begin()
    net.kill(3)
    net.weather.deaf[net.nodes[4].id] = 0.5
    net.run(10.0)
    net.restart(3, via=0)
    net.run(5.0)
    return net.trace


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    first = _trace(seed)
    assert first == _trace(seed)
    assert first != _trace(seed + 1)


@pytest.mark.slow
def test_a_failing_seed_is_printed_and_replays(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "test_failing.py").write_text(FAILING)

    def outcome(**variables: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
        environment = os.environ | variables
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    code, shown = outcome(DIFFUSE_SIM_SEED="7")
    assert code == 1
    assert "replay with DIFFUSE_SIM_SEED=7" in shown
    assert outcome(DIFFUSE_SIM_SEED="41")[0] == 0
