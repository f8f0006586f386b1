from __future__ import annotations

import resource
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from diffuse_core.adapters import hardware
from diffuse_core.adapters.hardware import SystemHardware, interface_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_real_machine() -> None:
    reader = SystemHardware()
    sample = reader.sample()
    assert 0 <= sample.cpu_percent <= 100
    assert sample.cpu_count >= 1
    assert 0 < sample.process_rss <= sample.memory_total
    assert 0 < sample.memory_available <= sample.memory_total
    assert reader.available_memory() > 0
    with Path(__file__).open():
        assert reader.sample().open_files == sample.open_files + 1


def test_a_process_that_may_open_no_more_files_tells_what_it_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = SystemHardware()
    before = reader.sample()

    def none_left() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(psutil, "virtual_memory", none_left)
    assert reader.sample() == before


def test_without_any_limit_the_machine_counts(tmp_path: Path) -> None:
    reader = SystemHardware(tmp_path)
    total = psutil.virtual_memory().total
    assert reader.sample().memory_total == total
    assert abs(reader.available_memory() - psutil.virtual_memory().available) < total // 4


def test_cgroup_2_limit_less_use_plus_what_the_kernel_gives_back(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a/b"
    write(group / "memory.max", f"{100 * MIB}\n")
    write(group / "memory.current", f"{60 * MIB}\n")
    write(group / "memory.stat", f"anon 5\ninactive_file {10 * MIB}\nodd\n")
    reader = SystemHardware(tmp_path)
    assert reader.available_memory() == 50 * MIB
    assert reader.sample().memory_total == 100 * MIB


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    for folder, limit in (("a/b", "max"), ("a", str(30 * MIB)), ("", str(90 * MIB))):
        group = tmp_path / "sys/fs/cgroup" / folder
        write(group / "memory.max", limit)
        write(group / "memory.current", "0")
    assert SystemHardware(tmp_path).available_memory() == 30 * MIB


def test_cgroup_1_in_a_container_whose_own_group_is_mounted_at_the_root(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "5:cpu,memory:/docker/abc\n0::/\nnonsense\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    write(group / "memory.limit_in_bytes", f"{80 * MIB}")
    write(group / "memory.usage_in_bytes", f"{20 * MIB}")
    write(group / "memory.stat", f"total_inactive_file {5 * MIB}\n")
    assert SystemHardware(tmp_path).available_memory() == 65 * MIB


@pytest.mark.parametrize(
    ("limit", "usage"), [("9223372036854771712", "5"), ("garbage", "5"), (str(MIB), "garbage")]
)
def test_figures_that_mean_no_limit(tmp_path: Path, limit: str, usage: str) -> None:
    write(tmp_path / "proc/self/cgroup", "5:memory:/\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    write(group / "memory.limit_in_bytes", limit)
    write(group / "memory.usage_in_bytes", usage)
    assert SystemHardware(tmp_path).available_memory() > 10 * MIB


def test_use_beyond_the_limit_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/../x\n")
    write(tmp_path / "sys/fs/cgroup/x/memory.max", "5")
    write(tmp_path / "sys/fs/cgroup/x/memory.current", "9")
    assert SystemHardware(tmp_path).available_memory() == 0


def test_the_process_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = psutil.Process().memory_info().vms + 50 * MIB
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert 0 <= SystemHardware(tmp_path).available_memory() <= 50 * MIB


def interfaces(monkeypatch: pytest.MonkeyPatch, found: dict[str, list[str]], down: str) -> None:
    def family(address: str) -> int:
        return socket.AF_INET6 if ":" in address else socket.AF_INET

    monkeypatch.setattr(
        hardware.psutil,
        "net_if_addrs",
        lambda: {
            name: [SimpleNamespace(family=family(a), address=a) for a in addresses]
            + [SimpleNamespace(family=psutil.AF_LINK, address="aa:bb:cc:dd:ee:ff")]
            for name, addresses in found.items()
        },
    )
    monkeypatch.setattr(
        hardware.psutil,
        "net_if_stats",
        lambda: {name: SimpleNamespace(isup=name != down) for name in found},
    )


def test_addresses_others_can_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "lo": ["127.0.0.1", "::1"],
        "eth0": ["fe80::1%eth0", "2001:db8::1", "192.168.1.20"],
        "eth1": ["169.254.1.1", "10.0.0.1"],
        "off": ["10.9.9.9"],
    }
    interfaces(monkeypatch, found, "off")
    assert interface_addresses() == ("192.168.1.20", "10.0.0.1", "[2001:db8::1]")


def test_loopback_only_when_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    interfaces(monkeypatch, {"lo": ["127.0.0.1", "::1"]}, "")
    assert interface_addresses() == ("127.0.0.1",)


def test_addresses_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    interfaces(monkeypatch, {"eth0": [f"10.0.0.{i}" for i in range(1, 9)]}, "")
    assert len(interface_addresses()) == 4


def topology(root: Path, *cores: tuple[int, int]) -> None:
    """CPUs of which each says (package, core)."""
    for number, (package, core) in enumerate(cores):
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        write(folder / "physical_package_id", f"{package}\n")
        write(folder / "core_id", f"{core}\n")


@pytest.fixture
def reader_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SystemHardware]:
    def make(root: Path, allowed: list[int], physical: int | None = 8) -> SystemHardware:
        monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else physical)
        monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _: allowed, raising=False)
        return SystemHardware(root)

    return make


def test_two_halves_of_a_core_count_once(tmp_path: Path, reader_of: Callable) -> None:
    topology(tmp_path, (0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0))
    assert reader_of(tmp_path, [0, 1, 2, 3, 4, 5]).cores() == 3
    assert reader_of(tmp_path, [0, 3]).cores() == 1
    assert reader_of(tmp_path, [0, 4]).cores() == 2


def test_cpus_that_say_nothing_count_each_up_to_the_machine(
    tmp_path: Path, reader_of: Callable
) -> None:
    assert reader_of(tmp_path, [0, 1, 2]).cores() == 3
    assert reader_of(tmp_path, list(range(12))).cores() == 8
    assert reader_of(tmp_path, list(range(12)), None).cores() == 12


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "garbage"}, 4),
        ({"cpu.cfs_quota_us": "300000\n", "cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.cfs_quota_us": "1", "cpu.cfs_period_us": "0"}, 4),
    ],
)
def test_a_quota_is_rounded_down_to_whole_cores(
    tmp_path: Path, reader_of: Callable, files: dict[str, str], cores: int
) -> None:
    old = "cpu.max" not in files
    write(tmp_path / "proc/self/cgroup", "4:cpu,cpuacct:/a/b\n" if old else "0::/a/b\n")
    for name, text in files.items():
        write(tmp_path / f"sys/fs/cgroup/{'cpu/' if old else ''}a" / name, text)
    assert reader_of(tmp_path, [0, 1, 2, 3]).cores() == cores


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512bw avx512vl avx512dq\n", True),
        ("flags\t\t: fpu avx2 avx512_bf16\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("flags\t\t: fpu avx2 f16c fma avx512f\n", False),
        ("Features\t: fp asimd bf16 i8mm\n", True),
        ("Features\t: fp asimd\n", False),
        ("model name\t: bf16 avx512_bf16\n", False),
        ("", False),
    ],
)
def test_bf16_is_fast_where_the_processor_says_so(tmp_path: Path, text: str, fast: bool) -> None:
    write(tmp_path / "proc/cpuinfo", f"processor\t: 0\n{text}")
    assert SystemHardware(tmp_path).fast_bf16() is fast


@pytest.mark.parametrize(
    ("file", "likely"),
    [
        ("dev/nvidia0", True),
        ("dev/kfd", True),
        ("dev/dxg", True),
        ("proc/driver/nvidia/version", True),
        ("dev/nvidia-caps", False),
        ("dev/null", False),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="drivers show elsewhere on other systems")
def test_an_accelerator_is_likely_where_its_driver_is(
    tmp_path: Path, file: str, likely: bool
) -> None:
    write(tmp_path / file, "")
    assert SystemHardware(tmp_path).accelerator_likely() is likely


def test_an_apple_chip_is_an_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.sys, "platform", "darwin")
    monkeypatch.setattr(hardware.platform, "machine", lambda: "arm64")
    assert SystemHardware(tmp_path).accelerator_likely()


def test_the_cores_of_the_real_machine() -> None:
    assert 1 <= SystemHardware().cores() <= psutil.cpu_count()
