"""When the lean engine is used: for its family, after it was checked against the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from diffuse_core.adapters.executor.lean.family import family_of
from diffuse_core.adapters.executor.lean.loader import lean_slice, rotary_of, slice_names
from diffuse_core.adapters.executor.lean.memory_source import MemorySource
from diffuse_core.adapters.executor.reading import check_shape
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.adapters.executor.strangers import refuse_strangers
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.executor.lean.engine import LeanEngine
    from diffuse_core.adapters.executor.skeleton import Plan
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import Progress, WeightSource


def lean_engine(
    source: WeightSource,
    plan: Plan,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: str,
) -> LeanEngine | None:
    """The lean engine with `part` loaded; None for a model of another family.

    Raises:
        UsageError: the contract is not computed on this device.
        ModelUnusable: a tensor is missing, has another shape or is not known, or a small model
            like this one does not say the same as the library's.
    """
    module = plan.build(Slice(0, plan.layers), torch.float32)
    family = family_of(module.config)
    if family is None:
        return None
    if device != "cpu" and contract in ("int8", "int4"):
        raise UsageError(f"{contract} is computed on the CPU only; use bf16 on {device}")
    prove(source.config(), small_lean_engine)
    refuse_strangers(source, plan, module, part)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    for name in slice_names(source, family, part, shapes):
        check_shape(source, name, shapes[name])
    return lean_slice(source, family, part, contract, rotary_of(module, device), progress, device)


def small_lean_engine(plan: Plan, weights: Mapping[str, torch.Tensor], part: Slice) -> LeanEngine:
    """The lean engine over tensors in memory, in fp32."""
    module = plan.build(Slice(0, plan.layers), torch.float32)
    family = family_of(module.config)
    if family is None:
        raise ValueError("the small model is of another family than the one it stands for")
    source = cast("WeightSource", MemorySource(weights))
    rotary = rotary_of(module, "cpu")
    return lean_slice(source, family, part, "fp32", rotary, lambda _: None)
