"""What a Slice is computed on, and in which contract, when nobody says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.errors import UsageError
from diffuse_core.model_ports import DeviceKind

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import ModelSource
    from diffuse_core.ports import Hardware

AcceleratorLook = Callable[[], Mapping[DeviceKind, int]]
"""Looks for accelerators: the bytes free on each kind there is. Makes torch load."""

PREFERRED: tuple[DeviceKind, ...] = ("cuda", "mps")
MEMORY_SHARE = 0.8
PROCESS_RESERVE = 2**30
"""Left to the interpreter, torch and the system (on a GPU, to its other users)."""


@dataclass(frozen=True)
class Device:
    """What a Slice is computed on, on this machine."""

    kind: DeviceKind
    threads: int
    """How many CPU threads a pass may use."""
    free: int
    """Bytes of its memory that could be taken now."""
    fast_bf16: bool = True
    """Whether it multiplies bf16 itself."""


DeviceChoice = Callable[[], Device]
"""Settles what to compute on; raises UsageError when what was asked for is not there.

May make torch load: called on the executor thread.
"""


def choose_device(
    asked: DeviceKind | None, threads: int | None, hardware: Hardware, look: AcceleratorLook
) -> Device:
    """The device asked for; of None the first of cuda, mps and cpu that is there.

    `look` loads torch: it is called only where an accelerator is asked for or likely, so that
    a machine without one learns so at once.

    Raises:
        UsageError: the device asked for is not there.
    """
    count = threads or hardware.cores()
    if asked != "cpu" and hardware.accelerator_likely():
        found = look()
        wanted = PREFERRED if asked is None else (asked,)
        for kind in wanted:
            if kind in found:
                return Device(kind, count, found[kind])
    else:
        found = {}
    if asked not in (None, "cpu"):
        there = ", ".join([*sorted(found), "cpu"])
        raise UsageError(
            f"--device {asked}: torch finds no such device here, only {there}; use one of them, "
            "or install the driver and a torch build for it"
        )
    return Device("cpu", count, hardware.available_memory(), hardware.fast_bf16())


def usual_contract(source: ModelSource, device: Device) -> Contract:
    """The Contract that suits a model on a device.

    bf16 is half the bytes of fp32, and decoding waits for bytes. The lean engine is as fast in it
    everywhere; of other modules some emulate each product where the CPU has no instructions for
    bf16, many times slower than fp32. int8 and int4 are never chosen here, also not for a file of
    4-bit codes: they take less memory and decode faster, but change the text a little, which is
    the user's choice to make.
    """
    return "bf16" if device.fast_bf16 or source.lean else "fp32"


def can_compute(device: DeviceKind, contract: Contract) -> bool:
    """Whether a device computes a contract: the integer kernels are the CPU's."""
    return device == "cpu" or contract in ("fp32", "bf16")


def check_computed(device: DeviceKind, contract: Contract) -> None:
    """Refuse a contract that a device does not compute.

    Raises:
        UsageError: it does not.
    """
    if not can_compute(device, contract):
        raise UsageError(
            f"--dtype {contract} is computed on the CPU only, and this would run on {device}; "
            "use --device cpu, or --dtype bf16"
        )


def default_capacity(available: int) -> int:
    """Bytes of weights and KV to offer on a device with `available` free bytes."""
    return max(0, int((available - PROCESS_RESERVE) * MEMORY_SHARE))
