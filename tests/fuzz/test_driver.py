"""The driver finds what is planted, keeps it, and does the same again for the same seed."""

from __future__ import annotations

import argparse
import hashlib
import mmap
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import coverage_guided
from tests.fuzz.driver import LastInput, fuzz, last_input, save
from tests.fuzz.mutation import Mutator
from tests.fuzz.watch import MIB, Finding, GrowthError, Hung, Watch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]
CORPUS = [b"\x93\x01\xa3abc\x92\xc0\x05", b"\x81\xa1t\xa4ping"]
RUNS = 3000


class Planted:
    """A target whose fault is known."""

    name = "planted"

    def __init__(self, run: Callable[[bytes], str]) -> None:
        self.run = run

    def inputs(self) -> list[bytes]:
        return list(CORPUS)

    def mutator(self, rng: random.Random, corpus: Sequence[bytes]) -> Mutator:
        return Mutator(rng, corpus)


def caught(run: Callable[[bytes], str], folder: Path, **limits: float) -> Finding:
    target = Planted(run)
    with pytest.raises(Finding) as found:
        fuzz(target, runs=RUNS, seed=3, watch=Watch(run, **limits), folder=folder)
    assert last_input("planted", folder).exists()
    return found.value


def test_a_crash_is_found_and_its_input_kept(tmp_path: Path) -> None:
    def run(data: bytes) -> str:
        if b"\xdd\xff\xff\xff\xff" in data:
            raise ZeroDivisionError("planted")
        return "fine"

    finding = caught(run, tmp_path)
    assert isinstance(finding.cause, ZeroDivisionError)
    assert LastInput.read(last_input("planted", tmp_path)) == finding.data
    with pytest.raises(ZeroDivisionError):
        run(save("planted", finding, tmp_path).read_bytes())


def test_an_endless_loop_is_interrupted(tmp_path: Path) -> None:
    def run(data: bytes) -> str:
        while data[:1] == b"\xff":
            pass
        return "fine"

    finding = caught(run, tmp_path, hang_s=0.05)
    assert isinstance(finding.cause, Hung)
    assert finding.data[:1] == b"\xff"


def test_a_loop_that_swallows_errors_is_interrupted(tmp_path: Path) -> None:
    def run(data: bytes) -> str:
        while data[:1] == b"\xff":
            try:
                data.decode()
            except Exception:  # noqa: BLE001, S112 - the very thing that must not hide a hang
                continue
        return "fine"

    assert isinstance(caught(run, tmp_path, hang_s=0.05).cause, Hung)


def test_what_is_slow_and_ends_is_found(tmp_path: Path) -> None:
    def run(data: bytes) -> str:
        if data[:1] == b"\xff":
            hashlib.pbkdf2_hmac("sha256", data, b"salt", 40_000)
        return "fine"

    assert isinstance(caught(run, tmp_path, hang_s=0.002).cause, Hung)


def test_a_leak_is_found(tmp_path: Path) -> None:
    kept = []

    def run(data: bytes) -> str:
        if b"\xc1" in data:
            # Straight from the kernel: of what a process has freed it could take without growing.
            pages = mmap.mmap(-1, MIB)
            pages.write(b"\x01" * MIB)
            kept.append(pages)
        return "fine"

    finding = caught(run, tmp_path, growth_bytes=16 * MIB, look_every=8)
    assert isinstance(finding.cause, GrowthError)
    assert len(kept) < 40


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a process's worst")
def test_a_flood_that_is_freed_at_once_is_found(tmp_path: Path) -> None:
    def run(data: bytes) -> str:
        if b"\xc1" in data:
            assert len(b"\x01" * (48 * MIB)) > len(data)
        return "fine"

    finding = caught(run, tmp_path, growth_bytes=16 * MIB, look_every=1)
    assert isinstance(finding.cause, GrowthError)
    assert b"\xc1" in finding.data


def test_a_sound_target_runs_through_and_leaves_nothing(tmp_path: Path) -> None:
    figures = fuzz(Planted(lambda data: str(len(data) % 3)), runs=500, seed=1, folder=tmp_path)
    assert figures.inputs == 500 + len(CORPUS)
    assert sum(figures.outcomes.values()) == figures.inputs
    assert not list(tmp_path.iterdir())


def test_two_runs_of_a_target_do_not_disturb_each_other(tmp_path: Path) -> None:
    one, other = (LastInput(last_input("planted", tmp_path)) for _ in range(2))
    one.put(b"one")
    other.put(b"other")
    assert LastInput.read(last_input("planted", tmp_path)) == b"other"


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        target = Planted(lambda data: seen.append(data) or "fine")
        fuzz(target, runs=200, seed=seed, folder=tmp_path)
        return seen

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)


def test_it_stops_when_its_time_is_up(tmp_path: Path) -> None:
    figures = fuzz(
        Planted(lambda _: "fine"), runs=10**9, seed=1, minutes=0.05 / 60, folder=tmp_path
    )
    assert 0 < figures.inputs < 10**9


def test_coverage_needs_a_package_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert coverage_guided.run(argparse.Namespace(target="frames")) == 2
    assert "pip install -e '.[fuzz]'" in capsys.readouterr().err


def test_the_command_replays_an_input_and_tells_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\x01\x00\x00\x00\xc1")
    command = [sys.executable, "-m", "tests.fuzz", "frames", "--input", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "seed 0, Python" in done.stdout
    assert "frames: 1 inputs" in done.stdout
    assert "malformed 1" in done.stdout
