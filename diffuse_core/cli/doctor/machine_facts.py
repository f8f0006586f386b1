"""What is to be known of cores, memory and open files, from the system."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

import psutil

from diffuse_core.cli.doctor.machine import THREAD_VARIABLES, MemoryFacts, ThreadFacts
from diffuse_core.services.devices import default_capacity

if TYPE_CHECKING:
    from diffuse_core.adapters.hardware import SystemHardware

if sys.platform != "win32":
    import resource


def thread_facts(hardware: SystemHardware) -> ThreadFacts:
    """Cores, limits, load, and what the environment says about threads."""
    logical = int(psutil.cpu_count() or 1)
    allowed = logical
    with contextlib.suppress(AttributeError):  # macOS knows no affinity
        allowed = len(psutil.Process().cpu_affinity())
    load = None
    with contextlib.suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
    said = {name: os.environ[name][:64] for name in THREAD_VARIABLES if name in os.environ}
    return ThreadFacts(hardware.cores(), logical, allowed, hardware.quota(), load, said)


def memory_facts(hardware: SystemHardware) -> MemoryFacts:
    """Memory that is there, and that may be used."""
    sample = hardware.sample()
    with warnings.catch_warnings():
        # Where the system does not tell how much was swapped, psutil warns; only use counts.
        warnings.simplefilter("ignore")
        swap = psutil.swap_memory()
    return MemoryFacts(
        total=sample.memory_total,
        available=sample.memory_available,
        machine=int(psutil.virtual_memory().total),
        space=_limit("RLIMIT_AS")[0],
        swap_used=int(swap.used),
        swap_total=int(swap.total),
        offer=default_capacity(sample.memory_available),
    )


def file_limits() -> tuple[int | None, int | None]:
    """How many files and sockets may be open: now, and after raising the limit."""
    return _limit("RLIMIT_NOFILE")


def _limit(name: str) -> tuple[int | None, int | None]:
    """Soft and hard limit of the process; None where there is none."""
    if sys.platform == "win32":
        return None, None
    soft, hard = (
        None if value in (resource.RLIM_INFINITY, -1) else int(value)
        for value in resource.getrlimit(getattr(resource, name))
    )
    return soft, hard
