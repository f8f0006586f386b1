"""GPUs, temperatures and the disk: figures that are read from drivers, without torch."""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from diffuse_core.domain.machine import MAX_CHIPS, MAX_GPUS, GpuFigures, Temperature
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.ports import SensorSample

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CELSIUS = 150.0
"""A sensor that tells more than that, or nothing above freezing, is broken or not connected."""

_CHIPS = {
    "coretemp": "CPU",
    "k10temp": "CPU",
    "zenpower": "CPU",
    "cpu_thermal": "CPU",
    "soc_thermal": "CPU",
    "acpitz": "board",
    "nvme": "disk",
    "drivetemp": "disk",
    "iwlwifi_1": "wifi",
}
_GPU_CHIPS = {"amdgpu", "nouveau", "radeon", "i915", "xe"}
"""Told with the GPU, or not at all."""
_AMD = "0x1002"
_MAX_TEXT = 256


class SystemSensors:
    """Implements ports.Sensors.

    Args:
        cache: Where models are kept; the nearest folder above it that exists is looked at.
        nvidia: Whether it is worth loading NVIDIA's management library.
        root: Where /sys is looked for.
    """

    def __init__(self, cache: Path, *, nvidia: bool, root: Path = Path("/")) -> None:
        self._cache = cache
        self._root = root
        self._nvidia = _Nvidia() if nvidia else None

    def sample(self) -> SensorSample:
        """Current figures; blocks, for milliseconds where the drivers are well."""
        gpus = [] if self._nvidia is None else self._nvidia.figures()
        gpus += amd_figures(self._root)
        return SensorSample(tuple(gpus[:MAX_GPUS]), chip_temperatures(), _disk_free(self._cache))


class _Nvidia:
    """NVIDIA's library, loaded at the first call; where there is no driver, only that once."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] | None = None

    def figures(self) -> list[GpuFigures]:
        if self._handles is None:
            self._handles = self._open()
        return [found for one in self._handles if (found := self._one(one)) is not None]

    def _open(self) -> list[Any]:
        try:
            import pynvml
        except ImportError:
            return []
        self._library = pynvml
        try:
            pynvml.nvmlInit()
            count = min(MAX_GPUS, int(pynvml.nvmlDeviceGetCount()))
            return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError:
            return []

    def _one(self, handle: Any) -> GpuFigures | None:
        library = self._library
        memory = self._ask(lambda: library.nvmlDeviceGetMemoryInfo(handle))
        if memory is None:
            return None
        name = self._ask(lambda: library.nvmlDeviceGetName(handle)) or "GPU"
        busy = self._ask(lambda: library.nvmlDeviceGetUtilizationRates(handle))
        celsius = self._ask(
            lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)
        )
        return GpuFigures(
            _name(name.decode(errors="replace") if isinstance(name, bytes) else str(name)),
            max(0, int(memory.total)),
            max(0, int(memory.used)),
            None if busy is None else _percent(float(busy.gpu)),
            None if celsius is None else _sound(float(celsius)),
        )

    def _ask(self, question: Callable[[], Any]) -> Any:
        """What the driver says; None where this GPU has no such figure, or is gone."""
        try:
            return question()
        except self._library.NVMLError:
            return None


def amd_figures(root: Path) -> list[GpuFigures]:
    """AMD's GPUs, from what their kernel driver tells in /sys."""
    found: list[GpuFigures] = []
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        total = _number(device / "mem_info_vram_total")
        if "-" in card.name or _read(device / "vendor") != _AMD or not total:
            continue
        hottest = [_number(path) for path in device.glob("hwmon/hwmon*/temp1_input")]
        celsius = [_sound(value / 1000) for value in hottest if value is not None]
        busy = _number(device / "gpu_busy_percent")
        found.append(
            GpuFigures(
                _name(_read(device / "product_name") or "AMD GPU"),
                total,
                _number(device / "mem_info_vram_used") or 0,
                None if busy is None else _percent(busy),
                celsius[0] if celsius else None,
            )
        )
    return found


def chip_temperatures() -> tuple[Temperature, ...]:
    """The hottest place of each chip, the processor first, then the hottest; () if unknown."""
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return ()
    try:
        chips = read()
    except (OSError, ValueError, RuntimeError):
        return ()
    hottest: dict[str, float] = {}
    for chip, places in chips.items():
        told = [value for place in places if (value := _sound(place.current)) is not None]
        if told and chip not in _GPU_CHIPS:
            label = _CHIPS.get(chip) or clean_line(chip)[:32]
            hottest[label] = max(*told, hottest.get(label, 0.0))
    order = sorted(hottest.items(), key=lambda one: (one[0] != "CPU", -one[1], one[0]))
    return tuple(Temperature(label, celsius) for label, celsius in order[:MAX_CHIPS])


def _disk_free(folder: Path) -> int | None:
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return int(shutil.disk_usage(place).free)
    return None


def _name(text: str) -> str:
    return clean_line(text)[:64].strip() or "GPU"


def _percent(value: float) -> float:
    return max(0.0, min(100.0, value))


def _sound(celsius: float | None) -> float | None:
    if celsius is None or not math.isfinite(celsius) or not 0 < celsius <= MAX_CELSIUS:
        return None
    return round(celsius, 1)


def _read(path: Path) -> str:
    try:
        with path.open("r", errors="replace") as file:
            return file.read(_MAX_TEXT).strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() and len(text) < 16 else None
