"""Figures of this machine and process, also inside containers."""

from __future__ import annotations

import contextlib
import platform
import socket
import sys
from pathlib import Path

import psutil

from diffuse_core.ports import HardwareSample

if sys.platform != "win32":
    import resource

MAX_INTERFACE_ADDRESSES = 4

_MAX_TEXT = 64 * 1024
_AVX512_CORE = {"avx512f", "avx512bw", "avx512vl", "avx512dq"}


class SystemHardware:
    """Implements ports.Hardware. `root` is where /proc, /sys and /dev are looked for."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups = _memory_groups(root)
        self._process = psutil.Process()
        self._last = HardwareSample(0.0, 1, 0, 0, 0)
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
        """Current figures; CPU use is that since the last call.

        Where nothing can be read now they are those of the last time: a process that has all
        files open that it may goes on telling its owner what it does.
        """
        with contextlib.suppress(OSError, psutil.Error):
            self._last = self._measured()
        return self._last

    def _measured(self) -> HardwareSample:
        total = int(psutil.virtual_memory().total)
        limits = [limit for group in self._groups if (limit := group.limit()) is not None]
        return HardwareSample(
            cpu_percent=float(psutil.cpu_percent(interval=None)),
            cpu_count=int(psutil.cpu_count() or 1),
            memory_total=min([total, *limits]),
            memory_available=self.available_memory(),
            process_rss=int(self._process.memory_info().rss),
            open_files=self._open_files(),
        )

    def _open_files(self) -> int:
        count = "num_handles" if sys.platform == "win32" else "num_fds"
        return int(getattr(self._process, count)())

    def cores(self) -> int:
        """Physical cores that this process may keep busy: of its affinity, within its quota.

        Two threads on the halves of one core only wait for each other in matrix kernels.
        """
        try:
            allowed = list(self._process.cpu_affinity())
        except AttributeError:  # macOS knows no affinity
            found = _mac_fast_cores() or psutil.cpu_count(logical=False) or psutil.cpu_count()
            return int(found or 1)
        found = len({_core_of(self._root, cpu) for cpu in allowed})
        physical = psutil.cpu_count(logical=False) or found
        quota = self.quota()
        # Rounded down: a thread that is throttled in the middle of a pass holds up all others.
        return max(1, int(min(found, physical, physical if quota is None else quota)))

    def quota(self) -> float | None:
        """CPUs' worth of time that the container may use; None without a limit."""
        quotas = [quota for folder in _cpu_groups(self._root) if (quota := _quota(folder))]
        return min(quotas, default=None)

    def fast_bf16(self) -> bool:
        """Whether the CPU multiplies bf16 at least about as fast as fp32.

        On x86 it is the instructions that oneDNN's bf16 kernels need (native ones or AMX where
        there are), on arm the extension of that name. Where nothing says so it is not.
        """
        text = _read(self._root / "proc/cpuinfo")
        lines = [line.partition(":") for line in text.splitlines()]
        flags = {
            flag
            for key, _, value in lines
            if key.strip().lower() in ("flags", "features")
            for flag in value.split()
        }
        return bool(flags & {"bf16", "amx_bf16", "avx512_bf16"}) or flags >= _AVX512_CORE

    def accelerator_likely(self) -> bool:
        """Whether it is worth loading torch to look for a GPU: its driver's files are there."""
        if (sys.platform, platform.machine()) == ("darwin", "arm64"):
            return True
        if sys.platform == "win32":
            return (Path("C:/Windows/System32") / "nvcuda.dll").is_file()
        dev = self._root / "dev"
        # kfd is AMD's, dxg is Windows' own inside WSL; torch calls each of them cuda.
        known = [dev / "kfd", dev / "dxg", self._root / "proc/driver/nvidia/version"]
        return any(path.exists() for path in known) or any(dev.glob("nvidia[0-9]*"))


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
        found += [
            _MemoryGroup(folder, *names)
            for folder in _upwards(base, path)
            if (folder / names[0]).is_file()
        ]
    return found


def _cpu_groups(root: Path) -> list[Path]:
    """Folders of the control groups that may limit this process's CPU time."""
    found: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            base = root / "sys/fs/cgroup/cpu"
        else:
            continue
        found += _upwards(base, path)
    return found


def _upwards(base: Path, path: str) -> list[Path]:
    """A group's folder, its parent's, and so on up to `base`."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota(folder: Path) -> float | None:
    """CPUs' worth of time that a group may use; None when it says no such thing."""
    fields = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu.cfs_quota_us").strip(),
        _read(folder / "cpu.cfs_period_us").strip(),
    ]
    if len(fields) != 2 or not all(field.isdigit() and int(field) > 0 for field in fields):
        return None
    return int(fields[0]) / int(fields[1])


def _core_of(root: Path, cpu: int) -> tuple[str, str]:
    """What tells a CPU's physical core from others; of one that does not say, the CPU itself."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    core = _read(folder / "core_id").strip()
    return (_read(folder / "physical_package_id").strip(), core) if core else ("cpu", str(cpu))


def _mac_fast_cores() -> int | None:
    """Performance cores of an Apple chip: with the slow ones in, all would wait for those."""
    import subprocess

    command = ["/usr/sbin/sysctl", "-n", "hw.perflevel0.physicalcpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout) if done.stdout.strip().isdigit() else None


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
