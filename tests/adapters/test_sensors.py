"""GPUs, temperatures, disk: read from fake drivers, and never in the way of anything."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from diffuse_core.adapters.sensors import SystemSensors, amd_figures, chip_temperatures
from diffuse_core.domain.machine import MAX_GPUS, GpuFigures, Temperature

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


class NVMLError(Exception):
    pass


def fake_nvml(**answers: Any) -> ModuleType:
    """A pynvml of one GPU; an answer that is an error is raised."""
    library = ModuleType("pynvml")
    library.calls = []
    facts = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=140 * GIB, used=7 * GIB),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=63),
        "nvmlDeviceGetTemperature": 41,
    }

    def function(name: str, answer: Any) -> Any:
        def call(*_: object) -> Any:
            library.calls.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    for name, answer in (facts | answers).items():
        setattr(library, name, function(name, answer))
    library.NVMLError = NVMLError
    library.NVML_TEMPERATURE_GPU = 0
    return library


@pytest.fixture
def no_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)


def gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **answers: Any
) -> tuple[GpuFigures, ...]:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**answers))
    return SystemSensors(tmp_path, nvidia=True, root=tmp_path).sample().gpus


@pytest.mark.usefixtures("no_chips")
def test_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gpus(monkeypatch, tmp_path) == (
        GpuFigures("NVIDIA H200", 140 * GIB, 7 * GIB, 63.0, 41.0),
    )
    # Old bindings give bytes, and a name is text from a driver like any other.
    (odd,) = gpus(monkeypatch, tmp_path, nvmlDeviceGetName=b"A\x1b[31m" + b"x" * 99)
    assert odd.name.startswith("A")
    assert "\x1b" not in odd.name
    assert len(odd.name) <= 64
    # What one GPU does not tell is left out; one that tells nothing of itself is no GPU.
    (bare,) = gpus(
        monkeypatch,
        tmp_path,
        nvmlDeviceGetName=NVMLError(),
        nvmlDeviceGetUtilizationRates=NVMLError(),
        nvmlDeviceGetTemperature=NVMLError(),
    )
    assert bare == GpuFigures("GPU", 140 * GIB, 7 * GIB)
    assert gpus(monkeypatch, tmp_path, nvmlDeviceGetMemoryInfo=NVMLError()) == ()
    assert len(gpus(monkeypatch, tmp_path, nvmlDeviceGetCount=99)) == MAX_GPUS


@pytest.mark.usefixtures("no_chips")
def test_without_a_driver_it_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = fake_nvml(nvmlInit=NVMLError("no driver"))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    sensors = SystemSensors(tmp_path, nvidia=True, root=tmp_path)
    assert [sensors.sample().gpus for _ in range(3)] == [()] * 3
    assert library.calls == ["nvmlInit"]
    # Nor when the library is not there at all, or not worth a look.
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert SystemSensors(tmp_path, nvidia=True, root=tmp_path).sample().gpus == ()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert SystemSensors(tmp_path, nvidia=False, root=tmp_path).sample().gpus == ()
    assert len(library.calls) == 1


def card(root: Path, name: str, **files: str) -> None:
    device = root / "sys/class/drm" / name / "device"
    (device / "hwmon/hwmon3").mkdir(parents=True)
    for file, text in files.items():
        place = device / "hwmon/hwmon3" if file == "temp1_input" else device
        (place / file).write_text(text + "\n")


def test_amd(tmp_path: Path) -> None:
    card(
        tmp_path,
        "card1",
        vendor="0x1002",
        product_name="Radeon PRO W7900",
        mem_info_vram_total=str(48 * GIB),
        mem_info_vram_used=str(GIB),
        gpu_busy_percent="17",
        temp1_input="51500",
    )
    card(tmp_path, "card0", vendor="0x8086", mem_info_vram_total=str(GIB))
    card(tmp_path, "card1-DP-1", vendor="0x1002", mem_info_vram_total=str(GIB))
    card(tmp_path, "card2", vendor="0x1002", mem_info_vram_total=str(GIB), temp1_input="-1")
    card(tmp_path, "card3", vendor="0x1002", mem_info_vram_total="many")
    assert amd_figures(tmp_path) == [
        GpuFigures("Radeon PRO W7900", 48 * GIB, GIB, 17.0, 51.5),
        GpuFigures("AMD GPU", GIB, 0),
    ]
    assert amd_figures(tmp_path / "nothing") == []


def chip(*celsius: float | None) -> list[SimpleNamespace]:
    return [SimpleNamespace(label="", current=value) for value in celsius]


def test_the_hottest_of_each_chip_the_processor_first(monkeypatch: pytest.MonkeyPatch) -> None:
    chips = {
        "nvme": chip(70.0, 41.0),
        "coretemp": chip(48.0, 55.04, None),
        "amdgpu": chip(90.0),
        "acpitz": chip(27.0),
        "odd\x1b[0m": chip(33.0),
        "cold": chip(20.0),
        "broken": chip(0.0, 65261.8, float("nan")),
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: chips, raising=False)
    first, second, third, fourth = chip_temperatures()
    assert (first, second) == (Temperature("CPU", 55.0), Temperature("disk", 70.0))
    assert third.celsius == 33.0
    assert "\x1b" not in third.label
    assert fourth == Temperature("board", 27.0)


def test_where_there_are_no_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dict[str, object]:
        raise OSError

    monkeypatch.setattr(psutil, "sensors_temperatures", broken, raising=False)
    assert chip_temperatures() == ()
    monkeypatch.delattr(psutil, "sensors_temperatures")
    assert chip_temperatures() == ()


def test_the_disk_under_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    sample = SystemSensors(tmp_path / "a/b", nvidia=False, root=tmp_path).sample()
    assert sample.disk_free == psutil.disk_usage(str(tmp_path)).free
