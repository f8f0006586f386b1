"""When the lean engine is used: for its family, after it was checked against the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from diffuse_core.adapters.executor.lean.blueprint import Blueprint
from diffuse_core.adapters.executor.lean.family import family_of
from diffuse_core.adapters.executor.lean.loader import lean_slice, rotary_of
from diffuse_core.adapters.executor.lean.memory_source import MemorySource
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.adapters.executor.skeleton import Plan
from diffuse_core.adapters.executor.strangers import left_over
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.executor.lean.engine import LeanEngine
    from diffuse_core.model_ports import WeightSource


def blueprint_of(config: Mapping[str, object]) -> Blueprint | None:
    """What the lean engine needs to load a model with these settings; None for another family.

    Raises:
        ModelUnusable: the settings are refused, or a small model like this one does not say the
            same as the library's.
    """
    plan = Plan(config)
    module = plan.build(Slice(0, plan.layers), torch.float32)
    family = family_of(module.config)
    if family is None:
        return None
    prove(config, small_lean_engine)
    rotary = rotary_of(module)
    return Blueprint(
        family=family,
        context=plan.context,
        shapes={name: tuple(tensor.shape) for name, tensor in module.state_dict().items()},
        idle=left_over(module),
        frequencies=tuple(rotary.frequencies.tolist()),
        scale=rotary.scale,
    )


def small_lean_engine(plan: Plan, weights: Mapping[str, torch.Tensor], part: Slice) -> LeanEngine:
    """The lean engine over tensors in memory, in fp32."""
    module = plan.build(Slice(0, plan.layers), torch.float32)
    family = family_of(module.config)
    if family is None:
        raise ValueError("the small model is of another family than the one it stands for")
    source = cast("WeightSource", MemorySource(weights))
    rotary = rotary_of(module)
    return lean_slice(source, family, part, "fp32", rotary, lambda _: None)
