"""GPUs as torch sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from diffuse_core.model_ports import DeviceKind


def accelerators() -> dict[DeviceKind, int]:
    """The bytes free on each kind of accelerator that this torch can use.

    Of several GPUs the first is used, which CUDA_VISIBLE_DEVICES can change.
    """
    found: dict[DeviceKind, int] = {}
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        found["cuda"] = int(free)
    if torch.backends.mps.is_available():
        recommended = torch.mps.recommended_max_memory()
        found["mps"] = max(0, int(recommended - torch.mps.driver_allocated_memory()))
    return found
