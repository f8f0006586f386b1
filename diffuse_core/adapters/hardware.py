"""Figures of this machine and process, also inside containers."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import psutil

from diffuse_core.ports import HardwareSample

if sys.platform != "win32":
    import resource

MAX_INTERFACE_ADDRESSES = 4

_MAX_TEXT = 64 * 1024


class SystemHardware:
    """Implements ports.Hardware. `root` is where /proc and /sys are looked for."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._groups = _memory_groups(root)
        self._process = psutil.Process()
        # The first call only sets the start of the interval that the next one reports.
        psutil.cpu_percent(interval=None)

    def available_memory(self) -> int:
        """Bytes that could be taken now: by the machine, the container and the process's limit."""
        free = [int(psutil.virtual_memory().available)]
        free += [left for group in self._groups if (left := group.left()) is not None]
        if (address_space := _address_space_limit()) is not None:
            free.append(address_space - int(self._process.memory_info().vms))
        return max(0, min(free))

    def sample(self) -> HardwareSample:
        """Current figures; CPU use is that since the last call."""
        total = int(psutil.virtual_memory().total)
        limits = [limit for group in self._groups if (limit := group.limit()) is not None]
        return HardwareSample(
            cpu_percent=float(psutil.cpu_percent(interval=None)),
            cpu_count=int(psutil.cpu_count() or 1),
            memory_total=min([total, *limits]),
            memory_available=self.available_memory(),
            process_rss=int(self._process.memory_info().rss),
        )


class _MemoryGroup:
    """One control group (https://docs.kernel.org/admin-guide/cgroup-v2.html) with its files."""

    def __init__(self, folder: Path, limit: str, usage: str, reclaimable: str) -> None:
        self._folder = folder
        self._limit = limit
        self._usage = usage
        self._reclaimable = reclaimable

    def limit(self) -> int | None:
        """Bytes the group may use; None when it says no such thing."""
        text = _read(self._folder / self._limit).strip()
        # Version 1 says "no limit" with a number beyond any machine.
        return int(text) if text.isdigit() and int(text) < 2**60 else None

    def left(self) -> int | None:
        """Bytes of the limit not in use; what the kernel would give back counts as free."""
        limit, usage = self.limit(), _read(self._folder / self._usage).strip()
        if limit is None or not usage.isdigit():
            return None
        fields = dict(
            line.split(" ", 1)
            for line in _read(self._folder / "memory.stat").splitlines()
            if " " in line
        )
        cached = fields.get(self._reclaimable, "0")
        return limit - int(usage) + (int(cached) if cached.isdigit() else 0)


def _memory_groups(root: Path) -> list[_MemoryGroup]:
    """The groups this process is in, from its own up to the root: any of them may be the limit."""
    found: list[_MemoryGroup] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
        found += [
            _MemoryGroup(folder, *names) for folder in folders if (folder / names[0]).is_file()
        ]
    return found


def _address_space_limit() -> int | None:
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _read(path: Path) -> str:
    try:
        with path.open("r", errors="replace") as file:
            return file.read(_MAX_TEXT)
    except OSError:
        return ""


def interface_addresses() -> tuple[str, ...]:
    """Addresses at which this machine may be dialled, IPv4 first, IPv6 in brackets.

    Loopback is given only when there is no other.
    """
    up = {name for name, status in psutil.net_if_stats().items() if status.isup}
    found: dict[int, list[str]] = {socket.AF_INET: [], socket.AF_INET6: []}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if name in up and entry.family in found and _dialable(entry.address):
                found[entry.family].append(entry.address)
    listed = found[socket.AF_INET] + [f"[{address}]" for address in found[socket.AF_INET6]]
    return tuple(dict.fromkeys(listed))[:MAX_INTERFACE_ADDRESSES] or ("127.0.0.1",)


def _dialable(address: str) -> bool:
    """Neither loopback, nor link-local, which means nothing on another machine."""
    return not address.startswith(("127.", "169.254.", "fe80:")) and address != "::1"
