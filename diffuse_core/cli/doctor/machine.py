"""Findings about cores, memory and open files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, ok, problem, warning
from diffuse_core.settings import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_OFFER = 150 * 2**20
"""What half of the demo model takes."""
LEAST_SPACE = 8 * 2**30
"""Addresses that torch, a model and threads' stacks come to; much more than they use."""
SWAPPING = 0.5
LEAST_FILES, GOOD_FILES = 256, 1024
"""A node may have 640 links that others opened, and the files of its model."""
BUSY = 0.75

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class ThreadFacts:
    """Cores that may be used, and what else wants them. `allowed` CPUs are those of the affinity.

    `quota` is how many CPUs' time the container may use, None without a limit. `load` is how many
    programs want a CPU, on average of the last minute; None where that is not told.
    """

    cores: int
    logical: int
    allowed: int
    quota: float | None
    load: float | None
    variables: Mapping[str, str]


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes. `limit` is the container's, `space` the most addresses the process may have.

    `offer` is what `host` takes when nothing is said. None: there is no such limit.
    """

    total: int
    available: int
    machine: int
    space: int | None
    swap_used: int
    swap_total: int
    offer: int


def judge_threads(facts: ThreadFacts) -> Finding:
    """Whether a host gets the cores that it reckons with."""
    limits = []
    if facts.allowed < facts.logical:
        limits.append(f"only {facts.allowed} of {facts.logical} CPUs are allowed to it")
    if facts.quota is not None:
        limits.append(f"the container may use the time of {facts.quota:g}")
    found = f"{facts.cores} compute threads"
    found += f" ({'; '.join(limits)})" if limits else f" of {facts.logical} logical CPUs"
    if facts.load is not None:
        found += f", load {facts.load:.1f}"
    told = {"threads": facts.cores, "load": facts.load, **facts.variables}
    odd = [name for name, value in facts.variables.items() if _odd(value, facts.cores)]
    if odd:
        named = ", ".join(f"{name}={facts.variables[name]}" for name in odd)
        step = f"run: unset {' '.join(odd)}; --threads sets how many a host computes with"
        return warning("threads", f"{found}; but {named} is set", step, **told)
    if facts.load is not None and facts.load > BUSY * max(1, facts.allowed):
        step = "other programs keep the cores busy: fewer --threads may be faster, or stop them"
        return warning("threads", found, step, **told)
    return ok("threads", found, **told)


def _odd(value: str, cores: int) -> bool:
    """Whether a library is told another number of threads than there are cores."""
    first = value.split(",")[0].strip()
    return not (first.isascii() and first.isdigit()) or int(first) != cores


def judge_memory(facts: MemoryFacts) -> Finding:
    """Whether there is room for a slice, and nothing that takes it away."""
    found = f"{size_text(facts.available)} free of {size_text(facts.total)}"
    if facts.total < facts.machine:
        found += f" (the container's limit; the machine has {size_text(facts.machine)})"
    found += f"; a host would offer {size_text(facts.offer)}"
    told = {
        "total": facts.total,
        "available": facts.available,
        "offer": facts.offer,
        "address_space": facts.space,
        "swap_used": facts.swap_used,
    }
    if facts.space is not None and facts.space < LEAST_SPACE:
        found += f"; addresses are limited to {size_text(facts.space)} (ulimit -v)"
        step = "torch may not load, and a host fails late: run `ulimit -v unlimited` before it"
        return warning("memory", found, step, **told)
    if facts.offer < LEAST_OFFER:
        step = (
            "close other programs, or say how much may be taken, e.g. --memory 150MiB; asking "
            "needs little"
        )
        return warning("memory", found, step, **told)
    if facts.swap_total and facts.swap_used > SWAPPING * facts.swap_total:
        found += f"; {size_text(facts.swap_used)} of {size_text(facts.swap_total)} swap in use"
        step = "a slice that is swapped out computes at the disk's pace: give a smaller --memory"
        return warning("memory", found, step, **told)
    return ok("memory", found, **told)


def judge_files(soft: int | None, hard: int | None) -> Finding:
    """Whether the process may open enough files and sockets. None: as many as it likes."""
    if soft is None or soft >= GOOD_FILES:
        most = "without a limit" if soft is None else f"up to {soft}"
        return ok("open files", f"{most} files and sockets at a time", soft=soft)
    found = f"at most {soft} files and sockets at a time (ulimit -n)"
    wanted = 4096 if hard is None else min(hard, 4096)
    steps = [f"run `ulimit -n {wanted}` before the node"] if wanted > soft else []
    if wanted < GOOD_FILES:
        steps.append(f"more than {hard} only root can allow (LimitNOFILE= of its service)")
    step = "; ".join(steps)
    if soft < LEAST_FILES:
        return problem("open files", found, step, soft=soft, hard=hard)
    return warning("open files", found, step, soft=soft, hard=hard)
