"""Loading a Slice: one tensor at a time, straight into its final type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.skeleton import (
    EMBEDDING,
    HEAD,
    Plan,
    global_name,
    layer_of,
)
from diffuse_core.adapters.executor.stage_executor import StageExecutor
from diffuse_core.adapters.executor.tensors import DTYPES, from_stored
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.domain.slices import Slice
    from diffuse_core.ports import Progress, WeightSource


def set_threads(count: int) -> None:
    """How many threads one pass may use; call before the first pass."""
    torch.set_num_threads(count)


def load_slice(
    source: WeightSource, part: Slice, contract: Contract, progress: Progress
) -> StageExecutor:
    """Read the tensors of `part` and nothing else.

    At its peak this takes the Slice and one tensor more. `progress` is told the fraction of bytes
    after each tensor; what it raises cancels the load.

    Raises:
        UsageError: the contract is not computed yet, or the model has no such layers.
        ModelUnusable: an architecture that is not proven, or a tensor that is missing, has
            another shape, or is unknown to the architecture.
    """
    if contract not in ("fp32", "bf16"):
        raise UsageError(f"{contract} comes in a later version; use bf16 (or fp32)")
    plan = Plan(source.config())
    if part.end > plan.layers:
        raise UsageError(f"the model has {plan.layers} layers, there is no slice {part}")
    dtype = DTYPES[contract]
    module = plan.build(part, dtype)
    wanted = {
        _stored_name(global_name(name, part), plan, source): tuple(parameter.shape)
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }
    _refuse_strangers(source, part, wanted)
    weights: dict[str, torch.Tensor] = {}
    total, done = sum(map(_numbers, wanted.values())), 0
    # Largest first: what a big tensor takes while it is read is gone when the rest is there.
    for name, shape in sorted(wanted.items(), key=lambda item: -_numbers(item[1])):
        weights[name] = _read(source, name, shape, dtype)
        done += _numbers(shape)
        progress(done / total)
    if part.end == plan.layers and HEAD not in weights:
        weights[HEAD] = weights[EMBEDDING]
        if part.start > 0:
            del weights[EMBEDDING]
    return StageExecutor(plan, part, contract, weights, module)


def _stored_name(name: str, plan: Plan, source: WeightSource) -> str:
    """Where a parameter's numbers are: with tied weights the head's are the embedding's."""
    if name == HEAD and plan.tied and HEAD not in source.names:
        return EMBEDDING
    return name


def _numbers(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _read(
    source: WeightSource, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    raw = source.read(name)
    if raw is None:
        raise ModelUnusable(
            f"the model has no tensor {name}; its files are incomplete: download it again"
        )
    if raw.shape != shape:
        raise ModelUnusable(
            f"tensor {name} has shape {raw.shape}, the model's settings say {shape}; "
            "its files do not belong together: download it again"
        )
    return from_stored(raw, dtype)


def _refuse_strangers(
    source: WeightSource, part: Slice, wanted: dict[str, tuple[int, ...]]
) -> None:
    """A tensor that the architecture does not read would change the text if left out."""
    for name in source.names:
        layer = layer_of(name)
        if layer is not None and part.start <= layer < part.end and name not in wanted:
            raise ModelUnusable(
                f"the model has a tensor {name} that its architecture does not know; "
                "it is not supported"
            )
