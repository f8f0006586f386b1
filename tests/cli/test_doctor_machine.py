"""What doctor makes of facts about software and the machine."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from diffuse_core.adapters.checkup.software import Library, PythonFacts, TorchFacts
from diffuse_core.cli.doctor.findings import Finding, exit_code, note, ok, problem, warning, worst
from diffuse_core.cli.doctor.machine import (
    MemoryFacts,
    ThreadFacts,
    judge_files,
    judge_memory,
    judge_threads,
)
from diffuse_core.cli.doctor.settings import judge_settings
from diffuse_core.cli.doctor.software import (
    judge_gpu,
    judge_libraries,
    judge_python,
    judge_torch,
)

GIB = 2**30
PYTHON = PythonFacts((3, 12, 1), 64, "CPython", "/bin/python")
TORCH = TorchFacts(version="2.13", mkl=True, onednn=True, cpu="AVX512", seconds=1.0)
THREADS = ThreadFacts(cores=4, logical=8, allowed=8, quota=None, load=0.5, variables={})
MEMORY = MemoryFacts(16 * GIB, 12 * GIB, 16 * GIB, None, 0, GIB, 8 * GIB)


def told(finding: Finding, state: str, word: str = "") -> None:
    """A finding is of this state and says this; what is not good says what to do."""
    assert finding.state == state
    assert word in f"{finding.found} {finding.step}"
    assert finding.step or state in ("ok", "note")


@pytest.mark.parametrize(
    ("findings", "state", "code"),
    [
        ([], "ok", 0),
        ([ok("a", "x"), note("b", "x")], "note", 0),
        ([warning("a", "x", "y"), note("b", "x")], "warning", 0),
        ([problem("a", "x", "y"), warning("b", "x", "y")], "problem", 8),
    ],
)
def test_the_worst_state_counts(findings: list[Finding], state: str, code: int) -> None:
    assert worst(findings) == state
    assert exit_code(findings) == code


def test_python() -> None:
    told(judge_python(PYTHON), "ok", "3.12.1")
    told(judge_python(replace(PYTHON, version=(3, 10, 9))), "problem", "3.11 or newer")
    told(judge_python(replace(PYTHON, bits=32)), "problem", "64-bit")


def test_libraries() -> None:
    good = Library("click", ">=8", "8.1", fits=True)
    told(judge_libraries([]), "note", "pip install diffuse-tui")
    told(judge_libraries([good]), "ok", "all 1")
    told(judge_libraries([good, Library("torch", ">=2.9", None, fits=False)]), "problem", "torch")
    old = Library("rich", ">=13", "12.0", fits=False)
    told(judge_libraries([good, old]), "warning", "pip install 'rich>=13'")


def test_torch() -> None:
    told(judge_torch(TORCH), "ok", "CPU only")
    broken = TorchFacts(problem="OSError: libtorch.so: cannot open")
    told(judge_torch(broken), "problem", "libtorch.so")
    late = TorchFacts(problem="it did not load within 10 s", late=True)
    told(judge_torch(late), "warning", "try again")
    slow = msgspec.structs.replace(TORCH, seconds=25.0)
    told(judge_torch(slow), "warning", "busy")
    bare = msgspec.structs.replace(TORCH, mkl=False, onednn=False)
    told(judge_torch(bare), "warning", "no fast kernels")


def test_gpu() -> None:
    told(judge_gpu([], TORCH, driver=False), "ok", "none is here")
    told(judge_gpu(["RTX"], TORCH, driver=True), "warning", "for the CPU only")
    built = msgspec.structs.replace(TORCH, cuda="12.8")
    told(judge_gpu(["RTX"], built, driver=True), "warning", "nvidia-smi")
    usable = msgspec.structs.replace(built, cuda_usable=True)
    told(judge_gpu(["RTX"], usable, driver=True), "ok", "through CUDA")
    told(judge_gpu([], TorchFacts(problem="x"), driver=True), "note", "does not load")


def test_threads() -> None:
    told(judge_threads(THREADS), "ok", "4 compute threads")
    limited = replace(THREADS, allowed=2, quota=1.5)
    told(judge_threads(limited), "ok", "the time of 1.5")
    told(judge_threads(replace(THREADS, load=7.0)), "warning", "--threads")
    for value in ("64", "1", "many"):
        odd = replace(THREADS, variables={"OMP_NUM_THREADS": value})
        told(judge_threads(odd), "warning", "unset OMP_NUM_THREADS")
    told(judge_threads(replace(THREADS, variables={"OMP_NUM_THREADS": "4"})), "ok")
    told(judge_threads(replace(THREADS, load=None)), "ok")


def test_memory() -> None:
    told(judge_memory(MEMORY), "ok", "would offer 8.0 GiB")
    told(judge_memory(replace(MEMORY, total=4 * GIB)), "ok", "the container's limit")
    told(judge_memory(replace(MEMORY, space=GIB)), "warning", "ulimit -v unlimited")
    told(judge_memory(replace(MEMORY, offer=2**20)), "warning", "--memory")
    told(judge_memory(replace(MEMORY, swap_used=GIB)), "warning", "swap")


def test_open_files() -> None:
    told(judge_files(None, None), "ok", "without a limit")
    told(judge_files(4096, 4096), "ok", "4096")
    told(judge_files(512, 65536), "warning", "ulimit -n 4096")
    told(judge_files(64, 512), "problem", "ulimit -n 512")
    stuck = judge_files(64, 64)
    told(stuck, "problem", "only root")
    assert "run `ulimit" not in stuck.step


def test_settings() -> None:
    told(judge_settings("", [], {}), "ok", "no file")
    told(judge_settings("/c.toml", [], {}), "ok", "/c.toml")
    told(judge_settings("", ["bad one"], {}), "problem", "config check")
    told(judge_settings("", [], {"DIFFUSE_MODLE": ""}), "warning", "DIFFUSE_MODLE")
