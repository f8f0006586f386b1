"""Findings about Python, libraries, torch and GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.cli.doctor.findings import Finding, note, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.checkup.software import Library, PythonFacts, TorchFacts

LEAST_PYTHON = (3, 11)
BITS = 64
SLOW_LOAD_S = 8.0


def judge_python(facts: PythonFacts) -> Finding:
    """Whether this interpreter can run Diffuse."""
    version = ".".join(map(str, facts.version))
    found = f"{facts.implementation} {version}, {facts.bits} bit, {facts.executable}"
    if facts.version[:2] < LEAST_PYTHON:
        return problem("python", found, "install Python 3.11 or newer", version=version)
    if facts.bits != BITS:
        return problem(
            "python", found, "install a 64-bit Python: torch has no other", version=version
        )
    return ok("python", found, version=version)


def judge_libraries(libraries: Sequence[Library]) -> Finding:
    """Whether what is installed is what Diffuse was tested with."""
    if not libraries:
        return note(
            "libraries",
            "Diffuse runs from its source and is not installed, so what it needs is not known",
            "install it: pip install diffuse-tui",
        )
    listed = {one.name: one.installed for one in libraries}
    absent = [one for one in libraries if one.installed is None]
    if absent:
        names = ", ".join(one.name for one in absent)
        step = f"run: {pip_install(absent)}"
        return problem("libraries", f"not installed: {names}", step, installed=listed)
    other = [one for one in libraries if not one.fits]
    if other:
        told = ", ".join(f"{one.name} {one.installed} (needs {one.wanted})" for one in other)
        step = f"it may work or not; run: {pip_install(other)}"
        return warning("libraries", told, step, installed=listed)
    return ok(
        "libraries", f"all {len(libraries)} are there, in versions that fit", installed=listed
    )


def pip_install(libraries: Sequence[Library]) -> str:
    """The command that installs what is wanted."""
    return "pip install " + " ".join(f"'{one.name}{one.wanted}'" for one in libraries)


def judge_torch(facts: TorchFacts) -> Finding:
    """Whether torch loads, and how fast it can compute here."""
    if facts.late:
        step = "try again: the disk or the machine is busy; if it stays so, hosts start slowly"
        return warning("torch", facts.problem, step)
    if facts.problem:
        return problem(
            "torch",
            f"it cannot be loaded: {facts.problem}",
            "nothing can be hosted here until it loads; run: pip install --force-reinstall torch "
            "(with more memory, where that is what it says). Asking and the app work without",
        )
    build = _build(facts)
    parts = [f"{facts.version} ({build})", f"loads in {facts.seconds:.1f} s"]
    kernels = [name for name, there in (("MKL", facts.mkl), ("oneDNN", facts.onednn)) if there]
    parts.append(f"{'+'.join(kernels) or 'no fast kernels'}, {facts.cpu or 'unknown CPU'}")
    found = ", ".join(parts)
    told = {
        "version": facts.version,
        "build": build,
        "load_s": facts.seconds,
        "cpu": facts.cpu,
    }
    if facts.seconds > SLOW_LOAD_S:
        step = "a host starts that slowly: the disk or the machine is very busy"
        return warning("torch", found, step, **told)
    if not kernels:
        step = "prompts are read slowly; install a usual build: pip install torch"
        return warning("torch", found, step, **told)
    return ok("torch", found, **told)


def _build(facts: TorchFacts) -> str:
    if facts.hip:
        return f"ROCm {facts.hip}"
    if facts.cuda:
        return f"CUDA {facts.cuda}"
    return "MPS" if facts.mps_usable else "CPU only"


def judge_gpu(names: Sequence[str], facts: TorchFacts, *, driver: bool) -> Finding:
    """Whether a GPU that is here can be used. `driver`: its driver's files are there."""
    seen = ", ".join(names) or "a GPU's driver"
    told: dict[str, Any] = {"gpus": list(names), "driver": driver}
    if facts.cuda_usable or facts.mps_usable:
        kind = "CUDA" if facts.cuda_usable else "MPS"
        return ok("gpu", f"{', '.join(names) or kind} can be used through {kind}", **told)
    if not driver and not names:
        return ok("gpu", "none is here; hosts compute on the CPU", **told)
    if facts.problem:
        return note("gpu", f"{seen} is here, and torch does not load to use it", **told)
    if facts.cuda is None and facts.hip is None:
        return warning(
            "gpu",
            f"{seen} is here, but this torch was built for the CPU only",
            "install the build for your driver: https://pytorch.org/get-started/locally/",
            **told,
        )
    return warning(
        "gpu",
        f"{seen} is here, but torch ({_build(facts)}) cannot use it",
        "check that the driver is loaded and new enough (nvidia-smi), that this user may open "
        "/dev/nvidia* or /dev/kfd, and CUDA_VISIBLE_DEVICES",
        **told,
    )
